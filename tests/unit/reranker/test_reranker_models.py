"""Several models behind one reranker: loaded with their first call or by one of their own, unloaded, and limited."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pergamon.client import AsyncClient, PergamonError, Targets

from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import GrpcServer
from services.inference.cards import ModelCard, ModelKind
from services.inference.store import ModelStore
from services.reranker.app import RerankerDeps, build
from services.reranker.settings import RerankerSettings
from tests.helpers.inference import card, write_tiny_model

DEFAULT, OTHER, THIRD, BROKEN, DENSE = "judge", "judge-two", "judge-three", "judge-broken", "tiny"


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reranker")
    store = ModelStore(folder)

    def add(model: ModelCard) -> None:
        store.add(model.name, lambda place: write_tiny_model(place, model))

    add(card(ModelKind.RERANKER, name=DEFAULT, aliases=("first",)))
    add(card(ModelKind.RERANKER, name=OTHER, aliases=("second",)))
    add(card(ModelKind.RERANKER, name=THIRD))
    add(card(ModelKind.RERANKER, name=BROKEN))
    add(card(name=DENSE))
    (folder / BROKEN / "model.safetensors").write_bytes(b"not what the card describes")
    return folder


@asynccontextmanager
async def serving(
    models_dir: Path, *, authenticator: Authenticator | None = None, api_key: str | None = None, **settings: Any
) -> AsyncGenerator[AsyncClient]:
    told = RerankerSettings(
        **{
            "port": 0, "metrics_port": 0, "models_dir": models_dir, "backend": "fake", "pull_models": False,
            "reranker_models": DEFAULT, "drain_seconds": 1, **settings,
        }
    )  # fmt: skip
    edge = Edge(authenticator=authenticator or Authenticator.open_to_all(), metrics=Metrics(), clock=SystemClock())
    server = GrpcServer(settings=told, edge=edge, apps=[build(told, RerankerDeps(edge=edge, metrics=edge.metrics))])
    await server.start()
    target = f"127.0.0.1:{server.port}"
    try:
        async with AsyncClient(target, targets=Targets(reranker=target), api_key=api_key, timeout_s=20) as client:
            yield client
    finally:
        await server.stop()


@pytest.fixture
async def client(models_dir: Path) -> AsyncGenerator[AsyncClient]:
    async with serving(models_dir) as started:
        yield started


async def loaded(client: AsyncClient) -> set[str]:
    return {model.name for model in await client.list_rerank_models() if model.loaded}


async def reason_of(call: Awaitable[object]) -> str:
    with pytest.raises(PergamonError) as caught:
        await call
    return caught.value.reason


async def test_models_when_nothing_was_asked_then_none_is_loaded_and_the_first_call_loads_its_own(
    client: AsyncClient,
) -> None:
    assert await loaded(client) == set()
    assert (await client.rerank("w1", ["w2"], model="SECOND")).model == OTHER
    assert await loaded(client) == {OTHER}


async def test_model_when_loaded_and_unloaded_by_an_alias_then_the_list_says_so(client: AsyncClient) -> None:
    model = await client.load_rerank_model("second")
    assert (model.name, model.loaded, await loaded(client)) == (OTHER, True, {OTHER})
    assert (await client.get_rerank_model(OTHER)).loaded
    model = await client.unload_rerank_model("second")
    assert (model.name, model.loaded, await loaded(client)) == (OTHER, False, set())
    assert not (await client.get_rerank_model(OTHER)).loaded


@pytest.mark.parametrize(
    ("name", "load", "unload"),
    [
        (DEFAULT, "", "MODEL_REQUIRED"),
        ("first", "", "MODEL_REQUIRED"),
        (BROKEN, "MODEL_INVALID", ""),
        (DENSE, "WRONG_MODEL_KIND", "WRONG_MODEL_KIND"),
        ("no-such", "MODEL_NOT_FOUND", "MODEL_NOT_FOUND"),
        ("", "INVALID_REQUEST", "INVALID_REQUEST"),
    ],
)
async def test_model_when_it_cannot_be_changed_then_the_reason_is_told_and_the_server_goes_on(
    client: AsyncClient, name: str, load: str, unload: str
) -> None:
    for change, reason in ((client.load_rerank_model, load), (client.unload_rerank_model, unload)):
        if reason:
            assert await reason_of(change(name)) == reason
        else:
            await change(name)
    assert len((await client.rerank("w1", ["w2"])).scores) == 1


async def test_model_when_the_caller_is_no_admin_then_it_is_not_changed(models_dir: Path, tmp_path: Path) -> None:
    entry = {"id": "k", "sha256": hashlib.sha256(b"key").hexdigest(), "tenant": "acme", "role": "writer"}
    (tmp_path / "keys.json").write_text(json.dumps([entry]))
    keys = Authenticator.load(tmp_path / "keys.json")
    async with serving(models_dir, authenticator=keys, api_key="key") as client:
        for change in (client.load_rerank_model, client.unload_rerank_model):
            assert await reason_of(change(OTHER)) == "PERMISSION_DENIED"
        assert await loaded(client) == set()


async def test_server_when_models_are_to_be_preloaded_then_they_are_before_it_is_ready(models_dir: Path) -> None:
    async with serving(models_dir, preload_rerankers=f" first, {OTHER},") as client:
        assert await loaded(client) == {DEFAULT, OTHER}


async def test_server_when_it_may_hold_no_more_models_then_it_says_so(models_dir: Path) -> None:
    async with serving(models_dir, max_loaded_rerankers=2, preload_rerankers=OTHER) as client:
        assert await reason_of(client.load_rerank_model(THIRD)) == "MODEL_LIMIT"
        assert (await client.rerank("w1", ["w2"])).model == DEFAULT
        await client.unload_rerank_model(OTHER)
        assert (await client.rerank("w1", ["w2"], model=THIRD)).model == THIRD


async def test_server_when_it_loads_only_what_it_is_told_then_others_are_refused(models_dir: Path) -> None:
    async with serving(models_dir, load_on_demand=False) as client:
        assert await reason_of(client.rerank("w1", ["w2"], model=OTHER)) == "MODEL_NOT_LOADED"
        assert (await client.rerank("w1", ["w2"])).model == DEFAULT
        await client.load_rerank_model(OTHER)
        assert (await client.rerank("w1", ["w2"], model=OTHER)).model == OTHER


async def test_unload_when_calls_use_the_model_then_none_of_them_fails(client: AsyncClient) -> None:
    await client.load_rerank_model(OTHER)

    async def call(number: int) -> int:
        return len((await client.rerank(f"w{number}", [f"w{step}" for step in range(40)], model=OTHER)).scores)

    calls = [asyncio.ensure_future(call(number)) for number in range(20)]
    await asyncio.sleep(0)
    await client.unload_rerank_model(OTHER)
    assert await asyncio.gather(*calls) == [40] * 20
