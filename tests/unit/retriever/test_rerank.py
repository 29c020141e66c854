"""Reranking inside a search: the order, the threshold, and every way it can be left out."""

import pytest

from services.catalog.types import RetrievalDefaults
from services.retriever.ports import RerankFailed
from services.retriever.types import DropReason, StageState
from tests.helpers.retrieval import World, stage, texts


@pytest.fixture
def world() -> World:
    return World()


def three(world: World, **retrieval: object):
    kb_id = world.kb(retrieval=RetrievalDefaults(**retrieval))  # type: ignore[arg-type]
    for n, text in enumerate(("a", "b", "c")):
        world.chunk(kb_id, text, dense=0.9 - n / 10)
    world.reranker.logits = {"a": -3.0, "b": 2.0, "c": 0.0}
    return kb_id


async def test_rerank_when_it_ran_then_by_logit_with_probability_and_label(world: World):
    reply = await world.search(three(world), rerank=True)
    assert texts(reply) == ["b", "c", "a"]
    best = reply.passages[0].scores.rerank
    assert best is not None
    assert (best.logit, best.probability, best.label.value) == (2.0, pytest.approx(0.8808, abs=1e-4), "HIGH")
    assert reply.passages[0].fused_rank == 2
    assert stage(reply, "rerank").state is StageState.OK


async def test_rerank_when_not_asked_for_then_skipped_and_the_threshold_does_not_act(world: World):
    reply = await world.search(three(world, threshold=0.99))
    assert texts(reply) == ["a", "b", "c"]
    assert stage(reply, "rerank").state is StageState.SKIPPED
    assert world.reranker.calls == []


async def test_rerank_when_request_says_off_then_the_stored_setting_is_overruled(world: World):
    await world.search(three(world, rerank=True), rerank=False)
    assert world.reranker.calls == []


async def test_rerank_when_logits_are_equal_then_the_fused_order_stands(world: World):
    kb_id = three(world)
    world.reranker.logits = {}
    assert texts(await world.search(kb_id, rerank=True)) == ["a", "b", "c"]


async def test_threshold_when_reranked_then_it_acts_on_the_probability_that_is_shown(world: World):
    kb_id = three(world)
    reply = await world.search(kb_id, rerank=True, threshold=0.5, include_dropped=True)
    assert texts(reply) == ["b", "c"]  # probability 0.5 of c is not below
    (dropped,) = reply.dropped
    assert dropped.reason is DropReason.THRESHOLD
    assert dropped.candidate.scores.rerank is not None
    assert dropped.candidate.scores.rerank.probability < 0.5


@pytest.mark.parametrize("reason", ["OVERLOADED", "MODEL_NOT_FOUND", "the reranker cannot be reached"])
async def test_rerank_when_it_fails_then_the_fused_order_is_returned_with_the_reason(world: World, reason: str):
    kb_id = three(world)
    world.reranker.failure = RerankFailed(reason)
    reply = await world.search(kb_id, rerank=True, threshold=0.9)
    assert texts(reply) == ["a", "b", "c"]
    assert all(passage.scores.rerank is None for passage in reply.passages)
    report = stage(reply, "rerank")
    assert (report.state, report.reason) == (StageState.DEGRADED, reason)


async def test_rerank_when_it_hangs_then_it_is_left_out_in_time():
    world = World(rerank_timeout_s=0.02)
    kb_id = three(world)
    world.reranker.hangs = True
    reply = await world.search(kb_id, rerank=True)
    assert texts(reply) == ["a", "b", "c"]
    assert stage(reply, "rerank").reason == "DEADLINE_EXCEEDED"


async def test_rerank_when_only_the_reserve_is_left_then_it_is_not_begun(world: World):
    kb_id = three(world)
    reply = await world.search(kb_id, rerank=True, within_s=0.04)
    assert texts(reply) == ["a", "b", "c"]
    assert world.reranker.calls == []
    assert stage(reply, "rerank").reason == "no time left before the deadline"


@pytest.mark.parametrize(
    ("card", "query", "reranked"),
    [
        (("en",), "en", True),
        (("en",), "de", False),
        (("en", "de"), "de", True),
        ((), "zh", True),
        (("en",), "", True),
    ],
)
async def test_rerank_when_the_model_is_not_made_for_the_language_then_skipped(
    world: World, card: tuple[str, ...], query: str, reranked: bool
):
    kb_id = three(world)
    world.reranker.languages = card
    world.languages.language = query
    reply = await world.search(kb_id, rerank=True)
    assert bool(world.reranker.calls) is reranked
    report = stage(reply, "rerank")
    assert (report.state is StageState.OK) is reranked
    assert reranked or "judge is not made for queries in de" in report.reason


async def test_rerank_when_a_passage_has_no_score_then_it_comes_last_and_the_report_says_so(world: World):
    kb_id = three(world)
    world.reranker.logits["a"] = None
    reply = await world.search(kb_id, rerank=True)
    assert texts(reply) == ["b", "c", "a"]
    assert stage(reply, "rerank").reason == "1 of 3 passages have no score"


async def test_rerank_when_a_passage_has_no_score_then_no_threshold_lets_it_through(world: World):
    kb_id = three(world)
    world.reranker.logits["a"] = None
    assert texts(await world.search(kb_id, rerank=True, threshold=0.1)) == ["b", "c"]


async def test_rerank_when_a_model_is_named_then_it_is_asked(world: World):
    await world.search(three(world), rerank=True, rerank_model="big")
    assert world.reranker.models == ["big"]
