"""Which models are in memory: loaded and unloaded by call and by use, and never more than allowed."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.common.clock import Deadline, SystemClock
from services.common.errors import NotFound, ServiceError
from services.inference.cards import ModelKind
from services.inference.engine import InferenceEngine
from services.inference.errors import (
    ModelInvalid,
    ModelLimit,
    ModelNotAvailable,
    ModelNotLoaded,
    ModelRequired,
    ShuttingDown,
    WrongModelKind,
)
from services.inference.observer import SilentObserver
from services.inference.registry import ModelRegistry, ServedModels
from services.inference.settings import InferenceSettings
from services.inference.store import ModelStore
from services.inference.types import InputType, Lane, Truncation
from tests.helpers.inference import card, write_tiny_model

DEFAULT, BROKEN, JUDGE = "m-default", "m-broken", "m-judge"
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    store = ModelStore(folder)
    cards = [card(name=name, aliases=(f"{name}-alias",)) for name in (DEFAULT, BROKEN, "m-a", "m-b", "m-c")]
    for wanted in (*cards, card(ModelKind.RERANKER, name=JUDGE)):
        store.add(wanted.name, lambda folder, wanted=wanted: write_tiny_model(folder, wanted))
    (folder / BROKEN / "model.safetensors").write_bytes(b"damaged")
    return folder


class Told(ModelRegistry):
    """A registry that remembers which models it began to load."""

    def __init__(self, models_dir: Path, *, close_timeout_seconds: float = 10.0, **served: Any) -> None:
        self.begun: list[str] = []
        self.beginning = asyncio.Event()
        values: dict[str, Any] = {"names": (DEFAULT,), "kinds": frozenset({ModelKind.DENSE}), "pull_missing": False}
        super().__init__(
            ServedModels(**values | served),
            settings=InferenceSettings(
                models_dir=models_dir, backend="fake", close_timeout_seconds=close_timeout_seconds
            ),
            clock=CLOCK,
            observer_of=self._note,
        )

    def _note(self, name: str) -> SilentObserver:
        self.begun.append(name)
        self.beginning.set()
        return SilentObserver()

    @property
    def loaded(self) -> set[str]:
        return {found.name for found, loaded in self.cards() if loaded}


@asynccontextmanager
async def registry(models_dir: Path, **options: Any) -> AsyncGenerator[Told]:
    made = Told(models_dir, **options)
    try:
        yield made
    finally:
        await made.aclose()


async def embed(engine: InferenceEngine) -> None:
    outcome = await engine.embed(
        ["w1"], input_type=InputType.QUERY, truncation=Truncation.FAIL, lane=Lane.INTERACTIVE,
        deadline=Deadline.after(5, CLOCK),
    )  # fmt: skip
    assert outcome.items[0].error is None


async def test_start_when_models_are_named_for_it_then_exactly_those_are_loaded(models_dir: Path) -> None:
    async with registry(models_dir, at_start=(DEFAULT, "m-b-alias")) as models:
        await models.start()
        assert models.loaded == {DEFAULT, "m-b"}
        assert next(found.name for found, _ in models.cards()) == DEFAULT


async def test_load_when_it_is_repeated_by_any_name_then_there_is_one_engine(models_dir: Path) -> None:
    async with registry(models_dir) as models:
        await asyncio.gather(models.load("m-a"), models.load("M-A-alias"), models.engine("m-a"))
        first = await models.engine("m-a")
        assert await models.engine("m-a-alias") is first
        assert models.begun == ["m-a"]


async def test_load_when_its_caller_leaves_then_it_goes_on(models_dir: Path) -> None:
    async with registry(models_dir) as models:
        leaving = asyncio.ensure_future(models.load("m-a"))
        await models.beginning.wait()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await models.load("m-a")
        assert leaving.cancelled()
        assert models.begun == ["m-a"]


async def test_load_when_the_files_are_damaged_then_the_others_go_on_and_only_a_call_for_it_tries_anew(
    models_dir: Path,
) -> None:
    async with registry(models_dir) as models:
        await models.load(DEFAULT)
        for change, trials in ((models.load, 1), (models.engine, 1), (models.load, 2)):
            with pytest.raises(ModelInvalid, match="not the file its card describes"):
                await change(BROKEN)
            assert models.begun.count(BROKEN) == trials
        await embed(await models.engine(DEFAULT))
        assert await models.proves_healthy()
        assert models.loaded == {DEFAULT}


async def test_load_when_it_failed_then_nothing_of_the_trial_stays_in_memory(models_dir: Path) -> None:
    class Observer(SilentObserver):
        """Handed to the load, and so in memory for as long as what it held."""

    made: list[weakref.ref[Observer]] = []

    def observer_of(name: str) -> Observer:
        observer = Observer()
        made.append(weakref.ref(observer))
        return observer

    served = ServedModels(names=(DEFAULT,), kinds=frozenset({ModelKind.DENSE}), pull_missing=False)
    settings = InferenceSettings(models_dir=models_dir, backend="fake")
    models = ModelRegistry(served, settings=settings, clock=CLOCK, observer_of=observer_of)
    for _ in range(2):  # the second is told what became of the first
        with pytest.raises(ModelInvalid, match="not the file its card describes"):
            await models.engine(BROKEN)
    async with asyncio.timeout(5):  # the thread that tried has to let go of it first
        while any(one() for one in made):
            await asyncio.sleep(0.005)
            gc.collect()
    assert len(made) == 1
    await models.aclose()


@pytest.mark.parametrize("steps", range(4))
async def test_health_when_a_model_is_unloaded_meanwhile_then_the_others_are_not_reported_as_ill(
    models_dir: Path, steps: int
) -> None:
    async with registry(models_dir) as models:
        await models.load(DEFAULT)
        await models.load("m-a")
        unloading = asyncio.ensure_future(models.unload("m-a"))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert await models.proves_healthy()
        await unloading


@pytest.mark.parametrize(
    ("name", "error"),
    [("no-such", NotFound), ("hf:org/model", NotFound), ("file:/etc", NotFound), (JUDGE, WrongModelKind),
     ("bge-small-en-v1.5", ModelNotAvailable)],
)  # fmt: skip
async def test_load_when_the_model_cannot_be_served_then_the_reason_is_told(
    models_dir: Path, name: str, error: type[ServiceError]
) -> None:
    async with registry(models_dir) as models:
        with pytest.raises(error):
            await models.load(name)
        with pytest.raises(error):
            await models.unload(name)


async def test_unload_when_the_model_is_in_use_then_its_work_is_finished_first(models_dir: Path) -> None:
    async with registry(models_dir) as models:
        async with models.using("m-a") as engine:
            unloading = asyncio.ensure_future(models.unload("m-a"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert models.loaded == set()
            await embed(engine)
            assert not unloading.done()
        assert (await unloading).name == "m-a"
        with pytest.raises(ShuttingDown):
            await embed(engine)


async def test_unload_when_its_work_does_not_end_in_time_then_it_is_ended(models_dir: Path) -> None:
    async with registry(models_dir, close_timeout_seconds=0.01) as models, models.using("m-a") as engine:
        await models.unload("m-a")
        with pytest.raises(ShuttingDown):
            await embed(engine)


async def test_unload_when_it_is_repeated_or_nothing_is_loaded_then_nothing_happens(models_dir: Path) -> None:
    async with registry(models_dir) as models:
        await models.load("m-a")
        assert [(await models.unload(name)).name for name in ("m-a-alias", "m-a", "m-b")] == ["m-a", "m-a", "m-b"]


async def test_unload_when_its_caller_leaves_then_it_goes_on(models_dir: Path) -> None:
    async with registry(models_dir) as models:
        async with models.using("m-a") as engine:
            leaving = asyncio.ensure_future(models.unload("m-a"))
            for _ in range(20):
                await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
        await models.unload("m-a")  # the same, if it is still going on
        with pytest.raises(ShuttingDown):
            await embed(engine)


async def test_unload_when_it_is_the_default_then_it_is_refused(models_dir: Path) -> None:
    async with registry(models_dir) as models:
        await models.load(DEFAULT)
        with pytest.raises(ModelRequired):
            await models.unload(f"{DEFAULT}-alias")
        assert models.loaded == {DEFAULT}


async def test_use_when_the_model_was_unloaded_then_it_is_loaded_again(models_dir: Path) -> None:
    async with registry(models_dir) as models:
        await models.load("m-a")
        await models.unload("m-a")
        await embed(await models.engine("m-a"))
        assert models.begun == ["m-a", "m-a"]


async def test_use_when_there_is_no_room_then_the_one_used_least_recently_makes_it(models_dir: Path) -> None:
    async with registry(models_dir, max_loaded=3) as models:
        for name in (DEFAULT, "m-a", "m-b", "m-a", "m-c"):
            await models.engine(name)
        assert models.loaded == {DEFAULT, "m-a", "m-c"}


async def test_use_when_there_is_no_room_then_an_idle_one_goes_before_one_in_use(models_dir: Path) -> None:
    async with registry(models_dir, max_loaded=3) as models, models.using("m-a") as engine:
        for name in (DEFAULT, "m-b", "m-c"):
            await models.engine(name)
        assert models.loaded == {DEFAULT, "m-a", "m-c"}
        await embed(engine)


async def test_use_when_all_are_loaded_to_stay_then_it_is_refused_and_the_place_of_the_default_is_kept(
    models_dir: Path,
) -> None:
    async with registry(models_dir, max_loaded=2) as models:
        await models.load("m-a")
        for change in (models.load, models.engine):
            with pytest.raises(ModelLimit, match="m-a are loaded to stay, of at most 2"):
                await change("m-b")
        await models.engine("")
        assert models.loaded == {DEFAULT, "m-a"}
        await models.unload("m-a")
        await models.load("m-b")
        assert models.loaded == {DEFAULT, "m-b"}


async def test_load_when_models_came_by_their_use_then_they_make_room(models_dir: Path) -> None:
    async with registry(models_dir, max_loaded=2) as models:
        await models.engine("m-a")
        await models.load("m-b")
        assert models.loaded == {"m-b"}


async def test_use_when_only_what_is_told_is_loaded_then_others_are_refused_until_they_are(models_dir: Path) -> None:
    async with registry(models_dir, on_demand=False) as models:
        await models.engine("")  # configured
        with pytest.raises(ModelNotLoaded, match=DEFAULT):
            await models.engine("m-a")
        await models.load("m-a")
        await models.engine("m-a")


async def test_close_when_a_load_is_waiting_then_it_ends(models_dir: Path) -> None:
    models = Told(models_dir)
    loading = asyncio.ensure_future(models.load("m-a"))
    await asyncio.sleep(0)
    await models.aclose()
    (ended,) = await asyncio.gather(loading, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)
    assert models.loaded == set()
