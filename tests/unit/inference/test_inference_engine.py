"""The engine end to end on the fake backend and on a tiny real model: order, per-item errors, refusals, integrity."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from services.common.clock import Deadline, FakeClock
from services.inference.batcher import Batcher, BatcherLimits
from services.inference.cards import ModelCard, ModelKind
from services.inference.engine import InferenceEngine
from services.inference.errors import (
    DeadlineUnreachable,
    EmptyInput,
    InputTooLong,
    ModelInvalid,
    ModelNotAvailable,
    WrongModelKind,
)
from services.inference.settings import InferenceSettings
from services.inference.store import ModelStore
from services.inference.tokenizer import TextTokenizer
from services.inference.types import InputType, Lane, Output, Truncation
from tests.helpers.inference import GatedBackend, card, word_tokenizer, write_tiny_model

CLOCK = FakeClock()
LONG = " ".join(f"w{i}" for i in range(70))


def _how(**changes: object) -> dict:
    return {
        "input_type": InputType.PASSAGE, "truncation": Truncation.FAIL, "lane": Lane.INTERACTIVE,
        "deadline": Deadline.after(30, CLOCK),
    } | changes  # fmt: skip


def _store(root: Path, model: ModelCard) -> ModelStore:
    store = ModelStore(root)
    store.add("tiny", lambda folder: write_tiny_model(folder, model))
    return store


async def _load(root: Path, model: ModelCard, backend: str = "fake") -> InferenceEngine:
    settings = InferenceSettings(models_dir=root, backend=backend, threads=1, precision="f32")
    return await InferenceEngine.load("tiny", store=_store(root, model), settings=settings, clock=CLOCK)


@pytest.fixture(params=["fake", "openvino"])
async def dense(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InferenceEngine]:
    engine = await _load(tmp_path, card(query_prefix="w80 ", passage_prefix="w81 "), request.param)
    yield engine
    await engine.aclose()


async def test_embed_when_some_texts_are_bad_then_the_others_have_vectors_in_order(dense: InferenceEngine):
    outcome = await dense.embed(["w1 w2", " ", LONG, "w3"], **_how())
    assert [type(item.error) for item in outcome.items] == [type(None), EmptyInput, InputTooLong, type(None)]
    assert [item.token_count for item in outcome.items] == [5, 0, 0, 4]
    assert np.allclose(np.linalg.norm(outcome.dense, axis=1), [1, 0, 0, 1], atol=1e-4)
    alone = await dense.embed(["w3"], **_how())
    assert outcome.dense[3] @ alone.dense[0] > 0.9999
    assert outcome.dense[0] @ alone.dense[0] < 0.9999


async def test_embed_when_the_input_type_differs_then_so_does_the_vector(dense: InferenceEngine):
    query = await dense.embed(["w1"], **_how(input_type=InputType.QUERY))
    passage = await dense.embed(["w1"], **_how())
    assert query.dense[0] @ passage.dense[0] < 0.9999


async def test_embed_when_asked_to_cut_then_says_what_was_cut(dense: InferenceEngine):
    outcome = await dense.embed([LONG, "w1"], **_how(truncation=Truncation.RIGHT))
    assert [(item.token_count, item.truncated) for item in outcome.items] == [(64, True), (4, False)]


async def test_embed_when_called_by_many_then_each_gets_its_own(dense: InferenceEngine):
    texts = [f"w{i} w{i + 1}" for i in range(30)]
    calls = await asyncio.gather(*(dense.embed([text], **_how()) for text in texts))
    together = await dense.embed(texts, **_how(lane=Lane.BULK))
    for call, row in zip(calls, together.dense, strict=True):
        assert call.dense[0] @ row > 0.9999


async def test_embed_when_there_are_no_texts_then_an_empty_answer(dense: InferenceEngine):
    assert (await dense.embed([], **_how())).dense.shape == (0, 32)


async def test_rerank_when_asked_of_a_dense_model_then_wrong_model_kind(dense: InferenceEngine):
    how = _how()
    del how["input_type"]
    with pytest.raises(WrongModelKind):
        await dense.rerank("w1", ["w2"], **how)


async def test_token_ids_when_texts_are_long_or_empty_then_everything_counts(dense: InferenceEngine):
    found = await dense.token_ids([LONG, ""], input_type=InputType.PASSAGE)
    assert [len(ids) for ids in found] == [73, 3]


async def test_rerank_when_a_passage_is_blank_then_the_others_have_logits(tmp_path: Path):
    engine = await _load(tmp_path, card(ModelKind.RERANKER), "openvino")
    how = _how(truncation=Truncation.RIGHT)
    del how["input_type"]
    outcome = await engine.rerank("w1", ["w2 w3", "", LONG], **how)
    await engine.aclose()
    assert np.isfinite(outcome.logits).tolist() == [True, False, True]
    assert isinstance(outcome.items[1].error, EmptyInput)
    assert outcome.items[2].truncated


async def test_sparse_when_texts_differ_then_so_do_their_terms(tmp_path: Path):
    engine = await _load(tmp_path, card(ModelKind.SPARSE), "openvino")
    outcome = await engine.embed(["w1 w2", " ", "w40"], outputs=frozenset({Output.SPARSE}), **_how())
    await engine.aclose()
    assert [len(v.indices) > 0 for v in outcome.sparse] == [True, False, True]
    assert outcome.sparse[0].values.sum() != outcome.sparse[2].values.sum()


@pytest.mark.parametrize(
    "change", [{"dimensions": 64}, {"max_tokens": 512}, {"architecture": "roberta"}], ids=lambda c: next(iter(c))
)
async def test_load_when_the_card_contradicts_the_config_then_model_invalid(tmp_path: Path, change: dict):
    store = ModelStore(tmp_path)

    def build(folder: Path) -> ModelCard:
        write_tiny_model(folder, card())
        return card(**change)

    store.add("tiny", build)
    settings = InferenceSettings(models_dir=tmp_path, backend="openvino", threads=1)
    with pytest.raises(ModelInvalid, match="the card says"):
        await InferenceEngine.load("tiny", store=store, settings=settings, clock=CLOCK)


async def test_load_when_the_model_is_not_here_then_model_not_available(tmp_path: Path):
    with pytest.raises(ModelNotAvailable):
        await InferenceEngine.load(
            "all-minilm-l6-v2", store=ModelStore(tmp_path), settings=InferenceSettings(models_dir=tmp_path), clock=CLOCK
        )


@pytest.mark.parametrize(("texts", "deadline_s"), [(64, 5.0), (2, 0.1)])
async def test_embed_when_the_deadline_is_hopeless_then_refuses_before_it_tokenises(texts: int, deadline_s: float):
    class Untouched(TextTokenizer):
        def encode(self, *_: object, **__: object) -> list:
            raise AssertionError("tokenised what was to be refused")

    backend = GatedBackend(gated=False)
    limits = BatcherLimits(budget_tokens=64)
    batcher = Batcher([backend], limits=limits, clock=CLOCK, known_passes=[(64, 1.0)])  # a second for 64 tokens
    engine = InferenceEngine(backend.card, Untouched(word_tokenizer(), max_tokens=64), [backend], batcher)
    with pytest.raises(DeadlineUnreachable):
        await engine.embed(["many words " * 100] * texts, **_how(deadline=Deadline.after(deadline_s, CLOCK)))
    await engine.aclose()


async def test_embed_when_a_huge_call_goes_away_while_it_is_tokenised_then_the_rest_is_left():
    loop, begun, texts = asyncio.get_running_loop(), asyncio.Event(), ["many words " * 12_000] * 64
    seen: list[int] = []

    class Watched(TextTokenizer):
        def encode(self, texts: Sequence[str], **how: object) -> list:
            seen.append(len(texts))
            loop.call_soon_threadsafe(begun.set)
            return super().encode(texts, **how)

    backend = GatedBackend(gated=False)
    engine = InferenceEngine(
        backend.card,
        Watched(word_tokenizer(), max_tokens=64),
        [backend],
        Batcher([backend], limits=BatcherLimits(), clock=CLOCK),
    )
    call = asyncio.ensure_future(engine.embed(texts, **_how(truncation=Truncation.RIGHT)))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await engine.aclose()
    assert 0 < sum(seen) <= len(texts) // 2
