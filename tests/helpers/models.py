"""A folder of tiny models as a server finds it; with the fake backend they answer at once, and nothing is fetched."""

from pathlib import Path

from services.inference.cards import ModelKind
from services.inference.store import ModelStore
from tests.helpers.inference import card, write_tiny_model

DENSE, RERANKER = "tiny", "tiny-judge"


def install_tiny_models(models_dir: Path) -> Path:
    """A dense model and a reranker, as `models pull` would leave them."""
    store = ModelStore(models_dir)
    for model_card in (card(name=DENSE), card(ModelKind.RERANKER, name=RERANKER)):
        store.add(model_card.name, lambda folder, wanted=model_card: write_tiny_model(folder, wanted))
    return models_dir
