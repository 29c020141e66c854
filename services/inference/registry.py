"""The models of one server: pulled when they are missing, loaded and unloaded by call or by use, closed together."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from services.common import logs
from services.common.clock import Clock, Deadline
from services.common.errors import NotFound, Overloaded, ServiceError
from services.inference.batcher import HEALTH_CLIENT
from services.inference.cards import ModelCard, ModelKind
from services.inference.checkpoint import TOKENIZER_FILE
from services.inference.engine import InferenceEngine
from services.inference.errors import (
    DeadlineUnreachable,
    ModelLimit,
    ModelNotAvailable,
    ModelNotLoaded,
    ModelRequired,
    WrongModelKind,
)
from services.inference.loaded import LoadedModel
from services.inference.memory import give_back
from services.inference.observer import BatcherObserver
from services.inference.pull import pull
from services.inference.settings import InferenceSettings
from services.inference.store import ModelStore
from services.inference.types import InputType, Lane, Truncation

_log = logs.get(__name__)

_PROBE = "health"
_PROBE_TIMEOUT_S = 3.0
#: For so long a model that could not be loaded is not tried again because a call names it.
_FAILED_FOR_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModels:
    """Which models a server serves: those named, the first of them by default, and any other installed one of `kinds`.

    `pull_missing`: those named are fetched when the server starts, and starter models when they are to be loaded.
    `at_start` are loaded before the server is ready. At most `max_loaded` are in memory, one place of which is the
    default's. `on_demand`: also models that are not named here load when a call asks for them.
    """

    names: tuple[str, ...]
    kinds: frozenset[ModelKind]
    pull_missing: bool = True
    at_start: tuple[str, ...] = ()
    max_loaded: int = 4
    on_demand: bool = True


class ModelRegistry:
    """Use it on one event loop. At most one engine a model, whatever names it is asked for by.

    Models loaded at start or by `load`, and the default, stay until `unload`. One that was loaded by its use makes room
    for another when there is none left: the idle one that was used least recently first, else the one in use, whose
    calls are finished before. Loads and unloads go one after the other, beside the calls of other models, and go on
    when who asked for them is gone.
    """

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
        self._loaded: dict[str, LoadedModel] = {}
        self._loaded_cards: dict[str, ModelCard] = {}
        self._changing = asyncio.Lock()
        self._changes: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._uses = itertools.count(1)
        self._failed: dict[str, tuple[float, ServiceError]] = {}

    async def start(self) -> None:
        """Fetch what is missing and load what is to be ready.

        Errors: MODEL_NOT_FOUND, MODEL_NOT_AVAILABLE, MODEL_INVALID, WRONG_MODEL_KIND, MODEL_LIMIT.
        """
        for name in self._served.names if self._served.pull_missing else ():
            if not await asyncio.to_thread(self._store.has, name):
                await self._pull(name)
        for name in self._served.at_start:
            await self.load(name)

    def cards(self) -> list[tuple[ModelCard, bool]]:
        """Every model that is installed and of a kind that is served, the default first; and whether it is loaded."""
        found = [card for card in self._store.installed() if card.kind in self._served.kinds]
        found.sort(key=lambda card: (not self._is_default(card), card.name))
        return [(card, card.name in self._loaded) for card in found]

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

    def is_loaded(self, card: ModelCard) -> bool:
        return card.name in self._loaded

    @asynccontextmanager
    async def using(self, name: str) -> AsyncGenerator[InferenceEngine]:
        """The engine of the model, which is loaded if need be and stays until the end of the block.

        Errors: those of `card`, MODEL_INVALID, MODEL_NOT_LOADED, MODEL_LIMIT.
        """
        model = await self._model(self.card(name), keep=False)
        with model.held():
            yield model.engine

    async def engine(self, name: str) -> InferenceEngine:
        """As `using`, for callers that can bear that the model is unloaded under them."""
        return (await self._model(self.card(name), keep=False)).engine

    async def load(self, name: str) -> ModelCard:
        """Fetch the model if it may be, verify it, warm it up, and keep it. Errors: those of `using`."""
        try:
            card = self.card(name)
        except ModelNotAvailable:
            if not self._served.pull_missing:
                raise
            await self._pull(name)
            card = self.card(name)
        await self._model(card, keep=True)
        return card

    async def unload(self, name: str) -> ModelCard:
        """Let the calls that use the model end, and close it. Nothing happens if it is not loaded.

        Errors: those of `card`, MODEL_REQUIRED for the default model.
        """
        card = self.card(name)
        if self._is_default(card):
            raise ModelRequired(
                f"model {card.name!r} is the default of this server and stays loaded; unload another one",
                metadata={"model": card.name},
            )
        await self._once(("unload", card.name), partial(self._unload, card))
        return card

    def tokenizer_file(self, card: ModelCard) -> Path:
        return self._store.folder(card) / TOKENIZER_FILE

    async def proves_healthy(self) -> bool:
        """Whether the devices of the loaded models answer: one short text through each queue, like any caller's."""
        return all(await asyncio.gather(*map(self._answers, self._loaded.values())))

    async def aclose(self) -> None:
        for change in self._changes.values():
            change.cancel()
        await asyncio.gather(*self._changes.values(), return_exceptions=True)
        for model in self._loaded.values():
            await model.engine.aclose()

    async def _model(self, card: ModelCard, *, keep: bool) -> LoadedModel:
        while (model := self._loaded.get(card.name)) is None:
            if not (keep or self._served.on_demand or self._is_named(card)):
                allowed = ", ".join(sorted(self._loaded))
                raise ModelNotLoaded(
                    f"model {card.name!r} is not loaded, and this server loads only what it is told to: "
                    f"load it, or name one of {allowed}",
                    metadata={"model": card.name, "allowed": allowed},
                )
            if not keep:
                self._raise_recent_failure(card)
            await self._once(("load", card.name), partial(self._load, card, keep=keep))
        model.used = next(self._uses)
        model.kept = model.kept or keep
        return model

    async def _load(self, card: ModelCard, *, keep: bool) -> None:
        async with self._changing:
            if card.name in self._loaded:
                return
            await self._make_room_for(card)
            engine = await self._new_engine(card)
            self._loaded[card.name] = LoadedModel(engine, kept=keep or self._is_default(card))
            self._loaded_cards |= dict.fromkeys((card.name, *card.aliases), card)
        _log.info("model_loaded", model=card.name, device=engine.device)

    async def _new_engine(self, card: ModelCard) -> InferenceEngine:
        try:
            engine = await InferenceEngine.load(
                card.name,
                store=self._store,
                settings=self._settings,
                clock=self._clock,
                observer=self._observer_of(card.name),
            )
        except ServiceError as error:
            # Without the frames it came through: they hold the weights that were to be loaded.
            self._failed[card.name] = (self._clock.monotonic(), copy(error))
            raise
        self._failed.pop(card.name, None)
        return engine

    def _raise_recent_failure(self, card: ModelCard) -> None:
        """A trial takes seconds of the processor, and another model's place: too much for every call that names it."""
        at, error = self._failed.get(card.name, (0.0, None))
        if error is not None and self._clock.monotonic() - at < _FAILED_FOR_S:
            raise copy(error)

    async def _unload(self, card: ModelCard) -> None:
        async with self._changing:
            if card.name in self._loaded:
                await self._retire(card)

    async def _make_room_for(self, card: ModelCard) -> None:
        """Retire models that were loaded by their use until another one fits. Raises ModelLimit where none is left."""
        has_default = any(self._is_default(model.engine.card) for model in self._loaded.values())
        most = self._served.max_loaded - (0 if has_default or self._is_default(card) else 1)
        while len(self._loaded) >= most:
            candidates = [model for model in self._loaded.values() if not model.kept]
            if not candidates:
                raise ModelLimit(
                    f"model {card.name!r} does not fit: {', '.join(sorted(self._loaded))} are loaded to stay, "
                    f"of at most {self._served.max_loaded} with the default: unload one, or allow more",
                    metadata={"model": card.name, "limit": str(self._served.max_loaded)},
                )
            first = min(candidates, key=lambda model: (model.in_use, model.used))
            await self._retire(first.engine.card)

    async def _retire(self, card: ModelCard) -> None:
        model = self._loaded.pop(card.name)
        for name in (card.name, *card.aliases):
            self._loaded_cards.pop(name, None)
        await model.retire(patience_s=self._settings.close_timeout_seconds)
        del model
        await asyncio.to_thread(give_back)
        _log.info("model_unloaded", model=card.name)

    async def _pull(self, name: str) -> None:
        async def fetch() -> None:
            await asyncio.to_thread(partial(pull, self._store, name, progress=partial(_note, name)))

        await self._once(("pull", name.lower()), fetch)

    async def _once(self, what: tuple[str, str], change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do `change` in a task of its own, one at a time for each `what`; later callers wait for the same."""
        task = self._changes.get(what)
        if task is None:
            task = self._changes[what] = asyncio.create_task(change())
            task.add_done_callback(partial(self._change_ended, what))
        await asyncio.shield(task)

    def _change_ended(self, what: tuple[str, str], task: asyncio.Task[None]) -> None:
        self._changes.pop(what, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("model_change_failed", change=what[0], model=what[1], reason=str(error))

    def _is_default(self, card: ModelCard) -> bool:
        return bool(self._served.names) and self._served.names[0].lower() in (card.name, *card.aliases)

    def _is_named(self, card: ModelCard) -> bool:
        return any(name.lower() in (card.name, *card.aliases) for name in self._served.names)

    async def _answers(self, model: LoadedModel) -> bool:
        """A forward pass with a result. A full queue says that the device is busy, not that it is lost."""
        engine, deadline = model.engine, Deadline.after(_PROBE_TIMEOUT_S, self._clock)
        try:
            with model.held():
                if engine.card.kind is ModelKind.RERANKER:
                    outcome = await engine.rerank(
                        _PROBE, [_PROBE], truncation=Truncation.RIGHT, lane=Lane.INTERACTIVE, deadline=deadline,
                        client=HEALTH_CLIENT,
                    )  # fmt: skip
                else:
                    outcome = await engine.embed(
                        [_PROBE],
                        outputs=engine.card.outputs,
                        input_type=InputType.QUERY,
                        truncation=Truncation.RIGHT,
                        lane=Lane.INTERACTIVE,
                        deadline=deadline,
                        client=HEALTH_CLIENT,
                    )
        except (Overloaded, DeadlineUnreachable):
            return engine.healthy
        except ServiceError:
            return self._loaded.get(engine.card.name) is not model  # one that was unloaded meanwhile is not missed
        return outcome.items[0].error is None and engine.healthy


def _note(name: str, step: str) -> None:
    _log.info("pulling_model", model=name, step=step)
