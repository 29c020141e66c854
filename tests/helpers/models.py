"""A folder of tiny models as a server finds it; with the fake backend they answer at once, and nothing is fetched."""

import json
from pathlib import Path

from services.inference.cards import ModelCard, ModelKind
from services.inference.store import ModelStore
from tests.helpers.inference import HEADS, card, write_tiny_model

DENSE, RERANKER, WIDE = "tiny", "tiny-judge", "tiny-wide"
#: Of WIDE: the vectors of 1,024 texts are more than 4 MiB.
WIDE_DIMENSIONS = 272 * HEADS


def install_tiny_models(models_dir: Path) -> Path:
    """Two dense models and a reranker, as `models pull` would leave them."""
    store = ModelStore(models_dir)
    for model_card in (card(name=DENSE), card(ModelKind.RERANKER, name=RERANKER)):
        store.add(model_card.name, lambda folder, wanted=model_card: write_tiny_model(folder, wanted))
    store.add(WIDE, _write_wide)
    return models_dir


def _write_wide(folder: Path) -> ModelCard:
    """For the fake backend alone, which looks at no weights: they are those of the narrow model."""
    wide = write_tiny_model(folder, card(name=WIDE, dimensions=WIDE_DIMENSIONS))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": WIDE_DIMENSIONS}))
    return wide
