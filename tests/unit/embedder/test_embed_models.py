"""Several models behind one server: loaded, unloaded, named and counted."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from pergamon.client import PergamonError
from pergamon.type.v1.model_pb2 import (
    MODEL_KIND_DENSE,
    MODEL_OUTPUT_DENSE,
    MODEL_OUTPUT_MULTI_VECTOR,
    MODEL_OUTPUT_SPARSE,
)

from services.common.auth import Authenticator
from services.common.errors import ServiceError
from tests.unit.embedder.servers import ALL, BROKEN, DENSE, MULTI_DIMENSIONS, SPARSE, Serving, serving


async def loaded(embedder: Serving) -> set[str]:
    return {model.name for model in await embedder.client.list_embedding_models() if model.loaded}


async def reason_of(call) -> str:
    with pytest.raises(PergamonError) as caught:
        await call
    return caught.value.reason


async def test_model_when_loaded_and_unloaded_by_an_alias_then_the_list_says_so(embedder: Serving) -> None:
    assert await loaded(embedder) == {DENSE, "bm25"}
    model = await embedder.client.load_embedding_model("everything")
    assert (model.name, model.loaded, model.kind) == (ALL, True, MODEL_KIND_DENSE)
    assert list(model.outputs) == [MODEL_OUTPUT_DENSE, MODEL_OUTPUT_SPARSE, MODEL_OUTPUT_MULTI_VECTOR]
    assert (model.multi_vector_dimensions, model.passage_overhead_tokens) == (MULTI_DIMENSIONS, 4)
    assert await loaded(embedder) == {DENSE, ALL, "bm25"}
    model = await embedder.client.unload_embedding_model("everything")
    assert (model.name, model.loaded) == (ALL, False)
    assert await loaded(embedder) == {DENSE, "bm25"}


async def test_model_when_it_is_only_described_then_it_is_not_loaded(embedder: Serving) -> None:
    model = await embedder.client.get_embedding_model("everything")
    assert (model.name, model.loaded, model.passage_overhead_tokens) == (ALL, False, 4)
    model = await embedder.client.get_embedding_model(DENSE)
    assert (model.loaded, list(model.matryoshka_dimensions)) == (True, [8, 16])


@pytest.mark.parametrize(
    ("name", "load", "unload"),
    [
        (DENSE, "", "MODEL_REQUIRED"),
        ("small", "", "MODEL_REQUIRED"),
        ("bm25", "", "MODEL_REQUIRED"),
        (BROKEN, "MODEL_INVALID", ""),
        ("tiny-judge", "WRONG_MODEL_KIND", "WRONG_MODEL_KIND"),
        ("no-such", "MODEL_NOT_FOUND", "MODEL_NOT_FOUND"),
        ("bge-small-en-v1.5", "MODEL_NOT_AVAILABLE", "MODEL_NOT_AVAILABLE"),
        ("", "INVALID_REQUEST", "INVALID_REQUEST"),
    ],
)
async def test_model_when_it_cannot_be_changed_then_the_reason_is_told_and_the_server_goes_on(
    embedder: Serving, name: str, load: str, unload: str
) -> None:
    for change, reason in (
        (embedder.client.load_embedding_model, load),
        (embedder.client.unload_embedding_model, unload),
    ):
        if reason:
            assert await reason_of(change(name)) == reason
        else:
            await change(name)
    assert (await embedder.client.embed(["w1"])).dense.rows == 1


async def test_model_when_the_caller_is_no_admin_then_it_is_not_changed(models_dir: Path, tmp_path: Path) -> None:
    entry = {"id": "k", "sha256": hashlib.sha256(b"key").hexdigest(), "tenant": "acme", "role": "writer"}
    (tmp_path / "keys.json").write_text(json.dumps([entry]))
    keys = Authenticator.load(tmp_path / "keys.json")
    async with serving(models_dir, authenticator=keys, api_key="key") as embedder:
        for change in (embedder.client.load_embedding_model, embedder.client.unload_embedding_model):
            assert await reason_of(change(ALL)) == "PERMISSION_DENIED"
        assert await loaded(embedder) == {DENSE, "bm25"}


async def test_server_when_models_are_to_be_preloaded_then_they_are_before_it_is_ready(models_dir: Path) -> None:
    async with serving(models_dir, preload_models=f" everything, {SPARSE}") as embedder:
        assert await loaded(embedder) == {DENSE, ALL, SPARSE, "bm25"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"max_loaded_models": 1, "preload_models": ALL}, "MODEL_LIMIT"), ({"preload_models": BROKEN}, "MODEL_INVALID")],
)
async def test_server_when_what_is_to_be_preloaded_cannot_be_then_it_does_not_start(
    models_dir: Path, settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(ServiceError) as caught:
        async with serving(models_dir, **settings):
            raise AssertionError("it started")
    assert caught.value.error_reason.name == reason


async def test_server_when_it_may_hold_no_more_models_then_it_says_so(models_dir: Path) -> None:
    async with serving(models_dir, max_loaded_models=2, preload_models=ALL) as embedder:
        assert await reason_of(embedder.client.load_embedding_model(SPARSE)) == "MODEL_LIMIT"
        assert await reason_of(embedder.client.embed(["w1"], sparse=True, sparse_model=SPARSE)) == "MODEL_LIMIT"
        await embedder.client.unload_embedding_model(ALL)
        assert (await embedder.client.embed(["w1"], sparse=True, sparse_model=SPARSE)).sparse_model == SPARSE


async def test_server_when_it_loads_only_what_it_is_told_then_others_are_refused(models_dir: Path) -> None:
    async with serving(models_dir, load_on_demand=False) as embedder:
        assert await reason_of(embedder.client.embed(["w1"], dense_model=ALL)) == "MODEL_NOT_LOADED"
        await embedder.client.load_embedding_model(ALL)
        assert (await embedder.client.embed(["w1"], dense_model=ALL)).dense_model == ALL


async def test_unload_when_calls_use_the_model_then_none_of_them_fails(embedder: Serving) -> None:
    await embedder.client.load_embedding_model(ALL)

    async def call(number: int) -> set[str]:
        reply = await embedder.client.embed([f"w{number} w{step}" for step in range(40)], dense_model=ALL)
        return {report.error.reason for report in reply.reports}

    calls = [asyncio.ensure_future(call(number)) for number in range(20)]
    await asyncio.sleep(0)
    await embedder.client.unload_embedding_model(ALL)
    assert await asyncio.gather(*calls) == [{""}] * 20


async def test_metrics_when_models_are_named_in_many_ways_then_labels_are_names_of_the_store(embedder: Serving) -> None:
    for name in ("", "small", "SMALL", DENSE, "everything", ALL):
        await embedder.client.embed(["w1"], dense_model=name)
    for number in range(5):
        assert await reason_of(embedder.client.embed(["w1"], dense_model=f"no-such-{number}")) == "MODEL_NOT_FOUND"
    samples = [sample for family in embedder.edge.metrics.registry.collect() for sample in family.samples]
    assert {sample.labels["model"] for sample in samples if "model" in sample.labels} == {DENSE, ALL}
