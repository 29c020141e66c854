"""Fetching models from the command line, with a line for each step."""

from collections.abc import Iterable
from pathlib import Path

from services.common.settings import default_models_dir
from services.inference.cards import ModelCard
from services.inference.pull import pull
from services.inference.sources import STARTER_MODELS
from services.inference.store import ModelStore
from services.launch.output import errors, megabytes

#: What a first run needs: the default dense model and the default reranker.
DEFAULT_MODELS = ("multilingual-e5-small", "ms-marco-minilm-l12")


def store_of(models_dir: Path | None) -> ModelStore:
    return ModelStore(models_dir or default_models_dir())


def pull_models(store: ModelStore, names: Iterable[str], *, quiet: bool = False) -> list[ModelCard]:
    """Fetch each model that is missing. Raises what `pull` raises for the first one that cannot be had."""
    cards: list[ModelCard] = []
    for name in names:
        if ":" not in name and store.has(name):
            cards.append(store.card(name))
            continue
        card = pull(store, name, progress=lambda step: None if quiet else errors.print(f"[dim]{step} ...[/dim]"))
        if not quiet:
            errors.print(f"{card.name}: {megabytes(size_of(store, card))}, licence {card.licence or 'not stated'}")
        cards.append(card)
    return cards


def size_of(store: ModelStore, card: ModelCard) -> int:
    """Bytes on disk."""
    return sum(file.stat().st_size for file in store.folder(card).iterdir() if file.is_file())


def starter_names() -> list[str]:
    return [model.card.name for model in STARTER_MODELS]
