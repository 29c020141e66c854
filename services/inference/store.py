"""The cache of models on this machine: one folder a model, complete or absent."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from services.common.errors import NotFound
from services.inference.cards import ModelCard, load_card, save_card
from services.inference.checkpoint import CARD_FILE, CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE
from services.inference.errors import ModelInvalid, ModelNotAvailable
from services.inference.sources import STARTER_MODELS, starter_model

_PARTIAL_PREFIX = ".partial-"
_READ_BYTES = 1 << 20


class ModelStore:
    """Models under `root`, each in a folder of its name: model.safetensors, tokenizer.json, config.json, card.json.

    Safe for several processes: a model appears by one rename, made under a lock on its name.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def installed(self) -> tuple[ModelCard, ...]:
        """The cards of all models here, by name. Folders whose card cannot be read are left out."""
        if not self.root.is_dir():
            return ()
        cards: list[ModelCard] = []
        for folder in sorted(self.root.iterdir()):
            if folder.name.startswith(".") or not (folder / CARD_FILE).is_file():
                continue
            try:
                cards.append(load_card(folder / CARD_FILE))
            except ModelInvalid:
                continue
        return tuple(cards)

    def has(self, name: str) -> bool:
        return any(name.lower() in (card.name, *card.aliases) for card in self.installed())

    def card(self, name: str) -> ModelCard:
        """By name or alias. Raises `ModelNotAvailable` for a starter model that was not pulled, else `NotFound`."""
        wanted = name.lower()
        installed = self.installed()
        for card in installed:
            if wanted in (card.name, *card.aliases):
                return card
        known = starter_model(wanted)
        if known is not None:
            raise ModelNotAvailable(
                f"model {known.card.name!r} is not on this machine: run `pergamon models pull {known.card.name}`",
                metadata={"model": known.card.name},
            )
        names = {card.name for card in installed} | {model.card.name for model in STARTER_MODELS}
        raise NotFound.model(name, tuple(sorted(names)))

    def folder(self, card: ModelCard) -> Path:
        return self.root / card.name

    def verified(self, name: str) -> tuple[ModelCard, Path]:
        """Card and folder of a model whose weights and tokenizer have the hashes of its card, else `ModelInvalid`."""
        card = self.card(name)
        folder = self.folder(card)
        for file, expected in ((WEIGHTS_FILE, card.sha256), (TOKENIZER_FILE, card.tokenizer_sha256)):
            try:
                actual = file_sha256(folder / file)
            except OSError as error:
                raise ModelInvalid(f"model {card.name!r} lacks its file {file}; pull it again") from error
            if actual != expected:
                raise ModelInvalid(f"{file} of model {card.name!r} is not the file its card describes; pull it again")
        return card, folder

    def add(self, name: str, build: Callable[[Path], ModelCard], *, timeout_s: float = 1800.0) -> ModelCard:
        """Make a model with `build(empty folder)` and let it appear under `name` in one step.

        `build` writes weights, config and tokenizer and returns the card without hashes. If another process makes the
        same model meanwhile, its result is taken. Whatever goes wrong, nothing is left behind under `name`.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.root / f".{name}.lock", timeout=timeout_s):
                if self._is_intact(name):
                    return self.card(name)
                self._sweep(name)
                return self._build(name, build)
        except Timeout as error:
            raise ModelNotAvailable(
                f"another process has been pulling {name!r} for {timeout_s:.0f} s; retry when it is done"
            ) from error

    def _build(self, name: str, build: Callable[[Path], ModelCard]) -> ModelCard:
        partial = Path(tempfile.mkdtemp(prefix=f"{_PARTIAL_PREFIX}{name}-", dir=self.root))
        try:
            card = build(partial)
            missing = [f for f in (WEIGHTS_FILE, TOKENIZER_FILE, CONFIG_FILE) if not (partial / f).is_file()]
            if card.name != name or missing:
                raise ModelInvalid(f"model {name!r} was built incompletely: {card.name!r} lacks {', '.join(missing)}")
            card = replace(
                card,
                sha256=file_sha256(partial / WEIGHTS_FILE),
                tokenizer_sha256=file_sha256(partial / TOKENIZER_FILE),
            )
            save_card(card, partial / CARD_FILE)
            partial.chmod(0o755)
            partial.rename(self.root / name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return card

    def _is_intact(self, name: str) -> bool:
        if not (self.root / name / CARD_FILE).is_file():
            return False
        try:
            self.verified(name)
        except ModelInvalid:
            return False
        return True

    def _sweep(self, name: str) -> None:
        """Remove what a killed pull of this model left, and a damaged copy of it. The lock is held."""
        for leftover in self.root.glob(f"{_PARTIAL_PREFIX}{name}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        damaged = self.root / name
        if damaged.exists():
            doomed = Path(tempfile.mkdtemp(prefix=f"{_PARTIAL_PREFIX}{name}-", dir=self.root))
            damaged.rename(doomed / name)
            shutil.rmtree(doomed, ignore_errors=True)


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
