"""The models of one server: pulled when they are missing, loaded by their first use, closed together."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from services.common import logs
from services.common.clock import Clock, Deadline
from services.common.errors import NotFound, Overloaded, ServiceError
from services.inference.observer import BatcherObserver
from services.inference.cards import ModelCard, ModelKind
from services.inference.checkpoint import TOKENIZER_FILE
from services.inference.engine import InferenceEngine, LazyEngine
from services.inference.errors import DeadlineUnreachable, WrongModelKind
from services.inference.pull import pull
from services.inference.settings import InferenceSettings
from services.inference.store import ModelStore
from services.inference.types import InputType, Lane, Truncation

_log = logs.get(__name__)

_PROBE = "health"
_PROBE_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModels:
    """Which models a server serves: those named, the first of them by default, and any other installed one of `kinds`.

    `pull_missing`: those named are fetched when the server starts.
    """

    names: tuple[str, ...]
    kinds: frozenset[ModelKind]
    pull_missing: bool = True


class ModelRegistry:
    """Use it on one event loop. At most one engine a model, whatever names it is asked for by."""

    def __init__(
        self,
        served: ServedModels,
        *,
        settings: InferenceSettings,
        clock: Clock,
        observer_of: Callable[[str], BatcherObserver],
    ) -> None:
        self._served = served
        self._settings = settings
        self._clock = clock
        self._observer_of = observer_of
        self._store = ModelStore(settings.models_dir)
        self._engines: dict[str, LazyEngine] = {}
        self._loaded_cards: dict[str, ModelCard] = {}

    async def start(self) -> None:
        """Fetch what is missing. Errors: MODEL_NOT_FOUND, MODEL_NOT_AVAILABLE, MODEL_INVALID."""
        for name in self._served.names if self._served.pull_missing else ():
            if not await asyncio.to_thread(self._store.has, name):
                await asyncio.to_thread(partial(pull, self._store, name, progress=partial(_note, name)))

    def cards(self) -> list[tuple[ModelCard, bool]]:
        """Every model that is installed and of a kind that is served, the default first; and whether it is loaded."""
        found = [card for card in self._store.installed() if card.kind in self._served.kinds]
        default = self._served.names[0].lower() if self._served.names else ""
        found.sort(key=lambda card: (default not in (card.name, *card.aliases), card.name))
        return [(card, self._is_loaded(card)) for card in found]

    def card(self, name: str) -> ModelCard:
        """By name or alias; empty: the default. Errors: MODEL_NOT_FOUND, MODEL_NOT_AVAILABLE, WRONG_MODEL_KIND."""
        wanted = name or (self._served.names[0] if self._served.names else "")
        if not wanted:
            raise NotFound.model(name, ())
        if known := self._loaded_cards.get(wanted.lower()):
            return known  # without a look at the disk: this is asked with every call
        card = self._store.card(wanted)
        if card.kind not in self._served.kinds:
            kinds = ", ".join(sorted(self._served.kinds))
            raise WrongModelKind(f"model {card.name!r} is {card.kind}; this server serves {kinds}")
        return card

    async def engine(self, name: str) -> InferenceEngine:
        """The engine of the model, loaded. Errors: those of `card`, and MODEL_INVALID."""
        card = self.card(name)
        engine = self._engines.get(card.name)
        if engine is None:
            load = partial(
                InferenceEngine.load,
                card.name,
                store=self._store,
                settings=self._settings,
                clock=self._clock,
                observer=self._observer_of(card.name),
            )
            engine = self._engines.setdefault(card.name, LazyEngine(load))
        loaded = await engine.get()
        self._loaded_cards |= dict.fromkeys((card.name, *card.aliases), card)
        return loaded

    def tokenizer_file(self, card: ModelCard) -> Path:
        return self._store.folder(card) / TOKENIZER_FILE

    async def proves_healthy(self) -> bool:
        """Whether the devices of the loaded models answer: one short text through each queue, like any caller's."""
        loaded = [engine.loaded for engine in self._engines.values() if engine.loaded is not None]
        return all([await self._answers(engine) for engine in loaded])

    async def aclose(self) -> None:
        for engine in self._engines.values():
            await engine.aclose()

    async def _answers(self, engine: InferenceEngine) -> bool:
        """A forward pass with a result. A full queue says that the device is busy, not that it is lost."""
        deadline = Deadline.after(_PROBE_TIMEOUT_S, self._clock)
        try:
            if engine.card.kind is ModelKind.RERANKER:
                outcome = await engine.rerank(
                    _PROBE, [_PROBE], truncation=Truncation.RIGHT, lane=Lane.INTERACTIVE, deadline=deadline
                )
            else:
                outcome = await engine.embed(
                    [_PROBE],
                    outputs=engine.card.outputs,
                    input_type=InputType.QUERY,
                    truncation=Truncation.RIGHT,
                    lane=Lane.INTERACTIVE,
                    deadline=deadline,
                )
        except (Overloaded, DeadlineUnreachable):
            return engine.healthy
        except ServiceError:
            return False
        return outcome.items[0].error is None

    def _is_loaded(self, card: ModelCard) -> bool:
        engine = self._engines.get(card.name)
        return engine is not None and engine.loaded is not None


def _note(name: str, step: str) -> None:
    _log.info("pulling_model", model=name, step=step)
