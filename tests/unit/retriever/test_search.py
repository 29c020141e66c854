"""The search as a whole, over fakes of what it depends on."""

import asyncio
from dataclasses import replace

import pytest

from services.catalog.types import RetrievalDefaults
from services.common.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    Overloaded,
    Reason,
    ServiceError,
    Unavailable,
)
from services.domain.filters import Equals
from services.domain.ids import DocVersionId, TenantId
from services.domain.scores import MatchedBy, SearchMode
from services.retriever.types import Combination, DropReason, StageState
from tests.helpers.retrieval import World, stage, texts


@pytest.fixture
def world() -> World:
    return World()


def many(world: World, kb_id, count: int = 120) -> None:
    """Chunks whose dense order is by number and whose BM25 order is scrambled."""
    for n in range(count):
        world.chunk(kb_id, f"t{n:03}", dense=1 - n / 1000, bm25=float((n * 37) % count) + 1)


async def test_search_when_hybrid_then_both_lists_are_one_query_of_150_and_fused_by_rank(world: World):
    kb_id = world.kb()
    world.chunk(kb_id, "both", dense=0.8, bm25=9.0)
    world.chunk(kb_id, "dense only", dense=0.9)
    world.chunk(kb_id, "words only", bm25=3.0)
    reply = await world.search(kb_id)
    assert texts(reply) == ["both", "dense only", "words only"]
    (query,) = world.index.queries
    assert (len(query.dense), len(query.sparse), query.limit) == (1, 1, 150)
    both, dense, words = (passage.scores for passage in reply.passages)
    assert both.fused == pytest.approx(1 / 62 + 1 / 61)
    assert both.dense is not None and (both.dense.rank, both.dense.score) == (2, 0.8)
    assert both.bm25 is not None and (both.bm25.rank, both.bm25.score) == (1, 9.0)
    assert [both.matched_by, dense.matched_by, words.matched_by] == [
        MatchedBy.BOTH,
        MatchedBy.SEMANTIC,
        MatchedBy.KEYWORD,
    ]


@pytest.mark.parametrize(
    ("mode", "lists", "found"),
    [(SearchMode.SEMANTIC, (1, 0), ["dense"]), (SearchMode.KEYWORD, (0, 1), ["words"])],
)
async def test_search_when_mode_is_single_then_only_that_list_is_asked_for(world: World, mode, lists, found):
    kb_id = world.kb()
    world.chunk(kb_id, "dense", dense=0.9)
    world.chunk(kb_id, "words", bm25=2.0)
    reply = await world.search(kb_id, mode=mode)
    (query,) = world.index.queries
    assert (len(query.dense), len(query.sparse)) == lists
    assert texts(reply) == found
    assert reply.passages[0].scores.fused == pytest.approx(1 / 61)
    (_, need) = world.embedder.calls[0]
    assert (need.dense_model is None, need.sparse_model is None) == (lists[0] == 0, lists[1] == 0)


@pytest.mark.parametrize("rerank", [False, True])
async def test_search_when_top_k_is_smaller_then_the_results_are_the_start_of_the_larger(world: World, rerank: bool):
    kb_id = world.kb()
    many(world, kb_id)
    world.reranker.logits = {f"t{n:03}": float((n * 53) % 97) for n in range(120)}
    eight = await world.search(kb_id, top_k=8, rerank=rerank)
    three = await world.search(kb_id, top_k=3, rerank=rerank)
    assert len(eight.passages) == 8
    assert three.passages == eight.passages[:3]


@pytest.mark.parametrize(
    ("retrieval", "request_", "expected"),
    [
        (RetrievalDefaults(), {}, 50),
        (RetrievalDefaults(candidates=70), {}, 70),
        (RetrievalDefaults(candidates=70), {"candidates": 9}, 9),
        (RetrievalDefaults(), {"rerank": True}, 84),
        (RetrievalDefaults(result_count=5), {"rerank": True}, 50),
        (RetrievalDefaults(result_count=40), {"rerank": True}, 200),
        (RetrievalDefaults(result_count=40), {"rerank": True, "candidates": 60}, 60),
    ],
)
async def test_search_when_candidates_are_chosen_then_that_many_go_on(world: World, retrieval, request_, expected):
    kb_id = world.kb(retrieval=retrieval)
    for n in range(260):
        world.chunk(kb_id, f"t{n}", dense=1 - n / 1000, bm25=n / 10 + 1)
    reply = await world.search(kb_id, **request_)
    assert stage(reply, "fuse").candidates_out == expected
    if request_.get("rerank"):
        assert len(world.reranker.calls[0]) == expected


async def test_search_when_top_k_exceeds_the_candidates_then_invalid(world: World):
    kb_id = world.kb()
    with pytest.raises(InvalidRequest) as caught:
        await world.search(kb_id, top_k=80)
    assert caught.value.violations[0].field == "top_k"
    assert "50" in caught.value.violations[0].description


async def test_search_when_not_reranking_then_only_the_results_are_fetched_in_one_call(world: World):
    kb_id = world.kb()
    many(world, kb_id)
    await world.search(kb_id, top_k=3)
    assert [len(ids) for ids in world.index.fetches] == [3]


async def test_search_when_duplicate_texts_then_the_best_is_kept_and_the_rest_reported(world: World):
    kb_id = world.kb()
    best = world.chunk(kb_id, "same", dense=0.9, document="a")
    world.chunk(kb_id, "same", dense=0.8, document="b")
    world.chunk(kb_id, "other", dense=0.7)
    reply = await world.search(kb_id, include_dropped=True)
    assert texts(reply) == ["same", "other"]
    assert reply.passages[0].stored.point_id == best.stored.point_id
    assert [(one.candidate.hit.document_id, one.reason) for one in reply.dropped] == [("doc_b", DropReason.DUPLICATE)]


async def test_search_when_duplicates_fill_the_list_then_they_do_not_use_up_candidates(world: World):
    kb_id = world.kb()
    for n in range(100):
        world.chunk(kb_id, "same", dense=0.9, document=f"copy {n}")
    world.chunk(kb_id, "other", dense=0.1)
    assert texts(await world.search(kb_id)) == ["same", "other"]


async def test_search_when_knowledge_base_has_a_language_then_the_query_is_analysed_in_it(world: World):
    await world.search(world.kb(language="de"))
    assert [need.language for _, need in world.embedder.calls] == ["de"]


async def test_search_when_scope_is_given_then_every_bound_reaches_the_query(world: World):
    kb_id = world.kb()
    world.change(kb_id, hidden_doc_versions=(DocVersionId(7), DocVersionId(9)))
    filters = (Equals(field="author", value="a"), Equals(field="title", value="b"))
    await world.search(kb_id, filters=filters)
    (query,) = world.index.queries
    assert query.filters == filters
    assert query.hidden_doc_versions == (7, 9)
    assert query.index_version == world.catalog.bases[kb_id].index.id
    assert world.catalog.snapshots == 1


async def test_search_when_another_tenant_asks_then_not_found_like_an_unknown_id(world: World):
    kb_id = world.kb()
    with pytest.raises(NotFound) as caught:
        await world.search(kb_id, tenant_id=TenantId("other"))
    assert caught.value.error_reason is Reason.KNOWLEDGE_BASE_NOT_FOUND
    assert world.embedder.calls == []


async def test_search_when_document_is_deleted_after_the_query_then_the_next_takes_its_place(world: World):
    kb_id = world.kb()
    gone = world.chunk(kb_id, "gone", dense=0.9)
    world.chunk(kb_id, "first", dense=0.8)
    world.chunk(kb_id, "second", dense=0.7)
    world.index.after_query = lambda: world.forget(gone)
    reply = await world.search(kb_id, top_k=2, include_dropped=True)
    assert texts(reply) == ["first", "second"]
    assert [(one.candidate.hit.point_id, one.reason) for one in reply.dropped] == [
        (gone.stored.point_id, DropReason.VANISHED)
    ]


async def test_search_when_the_best_of_duplicates_vanishes_then_its_twin_is_returned(world: World):
    kb_id = world.kb()
    gone = world.chunk(kb_id, "same", dense=0.9, document="a")
    twin = world.chunk(kb_id, "same", dense=0.8, document="b")
    world.index.after_query = lambda: world.forget(gone)
    reply = await world.search(kb_id)
    assert [passage.stored.point_id for passage in reply.passages] == [twin.stored.point_id]


async def test_search_when_point_is_gone_at_fetch_then_it_is_left_out(world: World):
    kb_id = world.kb()
    gone = world.chunk(kb_id, "gone", dense=0.9)
    world.index.after_query = lambda: world.index.chunks.pop(gone.stored.point_id) and None
    reply = await world.search(kb_id, include_dropped=True, rerank=True)
    assert reply.passages == ()
    assert reply.dropped[0].reason is DropReason.VANISHED


async def test_search_when_document_is_replaced_during_it_then_only_the_snapshots_version_is_shown(world: World):
    kb_id = world.kb()
    world.chunk(kb_id, "old text", dense=0.5, document="handbook")
    world.chunk(kb_id, "new text", dense=0.9, document="handbook")  # uploaded and live since the snapshot
    reply = await world.search(kb_id, include_dropped=True)
    assert texts(reply) == ["old text"]
    assert [one.reason for one in reply.dropped] == [DropReason.VANISHED]


async def test_search_when_several_are_routed_then_each_has_its_own_results_in_the_order_asked(world: World):
    one, two = world.kb("one"), world.kb("two")
    for n in range(4):
        world.chunk(one, f"one {n}", dense=0.2 - n / 100)
        world.chunk(two, f"two {n}", dense=0.9 - n / 100)
    reply = await world.search(one, two, top_k=2)
    assert texts(reply) == ["one 0", "one 1", "two 0", "two 1"]
    assert len(world.embedder.calls) == 1


async def test_search_when_merged_with_one_model_then_the_pool_is_ordered_by_score(world: World):
    one, two = world.kb("one"), world.kb("two")
    for n in range(4):
        world.chunk(one, f"one {n}", dense=0.2 - n / 100)
        world.chunk(two, f"two {n}", dense=0.9 - n / 100)
    reply = await world.search(one, two, top_k=3, combination=Combination.MERGED, mode=SearchMode.SEMANTIC)
    assert texts(reply) == ["two 0", "two 1", "two 2"]
    assert [passage.knowledge_base_name for passage in reply.passages] == ["two"] * 3


async def test_search_when_merged_with_different_models_then_by_rank_only(world: World):
    one, two = world.kb("one", model="e5"), world.kb("two", model="other")
    for n in range(3):
        world.chunk(one, f"one {n}", dense=0.2 - n / 100)
        world.chunk(two, f"two {n}", dense=0.9 - n / 100)
    reply = await world.search(one, two, top_k=4, combination=Combination.MERGED, mode=SearchMode.SEMANTIC)
    assert {passage.stored.text for passage in reply.passages} == {"one 0", "two 0", "one 1", "two 1"}
    assert len(world.embedder.calls) == 2


async def test_search_when_merged_then_the_same_text_of_two_knowledge_bases_comes_once(world: World):
    one, two = world.kb("one"), world.kb("two")
    world.chunk(one, "same", dense=0.2, document="a")
    world.chunk(two, "same", dense=0.9, document="b")
    merged = await world.search(one, two, combination=Combination.MERGED)
    routed = await world.search(one, two)
    assert [passage.knowledge_base_name for passage in merged.passages] == ["two"]
    assert texts(routed) == ["same", "same"]


async def test_search_when_merged_and_one_knowledge_base_reranks_then_the_whole_pool_is_reranked(world: World):
    one, two = world.kb("one", retrieval=RetrievalDefaults(rerank=True)), world.kb("two")
    world.chunk(one, "a", dense=0.9)
    world.chunk(two, "b", dense=0.8)
    world.reranker.logits = {"a": -2.0, "b": 3.0}
    assert texts(await world.search(one, two, combination=Combination.MERGED)) == ["b", "a"]
    assert [sorted(call) for call in world.reranker.calls] == [["a", "b"]]


async def test_search_when_routed_and_one_knowledge_base_reranks_then_only_that_one_is(world: World):
    one, two = world.kb("one", retrieval=RetrievalDefaults(rerank=True)), world.kb("two")
    world.chunk(one, "a", dense=0.9)
    world.chunk(two, "b", dense=0.8)
    reply = await world.search(one, two)
    assert world.reranker.calls == [("a",)]
    assert [passage.scores.rerank is not None for passage in reply.passages] == [True, False]


async def test_search_when_embedder_is_down_then_the_error_says_so(world: World):
    kb_id = world.kb()
    world.embedder.failures[None] = Unavailable("down", reason=Reason.EMBEDDER_UNAVAILABLE)
    for mode in SearchMode:
        with pytest.raises(ServiceError) as caught:
            await world.search(kb_id, mode=mode)
        assert caught.value.error_reason is Reason.EMBEDDER_UNAVAILABLE


async def test_search_when_only_the_dense_model_fails_then_hybrid_goes_on_by_keyword_and_says_so(world: World):
    kb_id = world.kb()
    world.chunk(kb_id, "words", dense=0.9, bm25=2.0)
    await world.search(kb_id, mode=SearchMode.KEYWORD, query="to learn what a hybrid need is")
    need = world.embedder.calls[0][1]._replace(dense_model="e5")
    world.embedder.failures[need] = ServiceError("no weights", reason=Reason.MODEL_NOT_AVAILABLE)
    reply = await world.search(kb_id)
    assert [passage.scores.matched_by for passage in reply.passages] == [MatchedBy.KEYWORD]
    report = stage(reply, "embed")
    assert (report.state, report.reason) == (StageState.DEGRADED, "MODEL_NOT_AVAILABLE: searched by keyword only")


async def test_search_when_only_the_dense_model_fails_then_semantic_fails(world: World):
    kb_id = world.kb()
    world.embedder.failures[None] = ServiceError("no weights", reason=Reason.MODEL_NOT_AVAILABLE)
    with pytest.raises(ServiceError):
        await world.search(kb_id, mode=SearchMode.SEMANTIC)
    assert len(world.embedder.calls) == 1


async def test_search_when_index_is_down_then_the_error_says_so(world: World):
    kb_id = world.kb()
    world.index.failure = Unavailable("down")
    with pytest.raises(Unavailable) as caught:
        await world.search(kb_id)
    assert caught.value.error_reason is Reason.INDEX_UNAVAILABLE


async def test_search_when_knowledge_base_is_empty_then_nothing_is_asked_of_anyone(world: World):
    kb_id = world.kb(chunks=0)
    reply = await world.search(kb_id)
    assert reply.passages == ()
    assert (world.embedder.calls, world.index.queries) == ([], [])
    assert stage(reply, "embed").state is StageState.SKIPPED


async def test_search_when_query_has_no_words_then_keyword_finds_nothing_and_hybrid_searches_dense(world: World):
    kb_id = world.kb()
    world.chunk(kb_id, "a", dense=0.9, bm25=1.0)
    world.embedder.words = False
    assert (await world.search(kb_id, query="???", mode=SearchMode.KEYWORD)).passages == ()
    assert texts(await world.search(kb_id, query="???")) == ["a"]
    assert world.index.queries[0].sparse == ()


async def test_search_when_query_was_cut_then_the_report_says_so(world: World):
    kb_id = world.kb()
    world.embedder.truncated = True
    report = stage(await world.search(kb_id), "embed")
    assert report.state is StageState.OK
    assert "cut" in report.reason


async def test_search_when_too_many_are_in_work_then_refused_at_once():
    world = World(max_searches=1)
    kb_id = world.kb()
    world.catalog.before_snapshot = asyncio.Event()
    first = asyncio.create_task(world.search(kb_id))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as caught:
        await world.search(kb_id)
    assert caught.value.retry_after_s
    world.catalog.before_snapshot.set()
    await first
    await world.search(kb_id)


async def test_search_when_its_caller_goes_away_then_its_place_is_free_and_its_embedding_ends():
    world = World(max_searches=1)
    kb_id = world.kb()
    await world.search(kb_id, query="so that it is known")
    world.catalog.before_snapshot = asyncio.Event()
    gone = asyncio.create_task(world.search(kb_id, query="other"))
    for _ in range(5):
        await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    world.catalog.before_snapshot.set()
    await world.search(kb_id)


async def test_search_when_the_embedder_is_slower_than_its_limit_then_it_is_called_unavailable(world: World):
    kb_id = world.kb()
    world.embedder.failures[None] = DeadlineExceeded("late")
    with pytest.raises(Unavailable) as caught:
        await world.search(kb_id, within_s=60)
    assert caught.value.error_reason is Reason.EMBEDDER_UNAVAILABLE
    with pytest.raises(DeadlineExceeded):
        await world.search(kb_id, within_s=1)


async def test_search_when_the_deadline_has_passed_then_nothing_is_embedded(world: World):
    kb_id = world.kb()
    with pytest.raises(DeadlineExceeded):
        await world.search(kb_id, within_s=0)
    assert world.embedder.calls == []


async def test_search_when_knowledge_base_is_known_then_embedding_does_not_wait_for_the_snapshot(world: World):
    kb_id = world.kb()
    await world.search(kb_id, query="first")
    world.embedder.called.clear()
    world.catalog.before_snapshot = asyncio.Event()
    second = asyncio.create_task(world.search(kb_id, query="second"))
    async with asyncio.timeout(5):
        await world.embedder.called.wait()
    assert not second.done()
    world.catalog.before_snapshot.set()
    await second
    assert [query for query, _ in world.embedder.calls] == ["first", "second"]


async def test_search_when_the_guess_was_wrong_then_the_snapshots_model_is_used(world: World):
    kb_id = world.kb()
    world.chunk(kb_id, "a", dense=0.9)
    await world.search(kb_id, query="first")
    world.change(kb_id, embedding_model="better")
    assert texts(await world.search(kb_id, query="second")) == ["a"]
    assert [need.dense_model for _, need in world.embedder.calls] == ["e5", "e5", "better"]
    assert world.index.queries[-1].schema.model == "better"


async def test_search_when_knowledge_base_was_deleted_since_then_not_found_though_it_was_guessed(world: World):
    kb_id = world.kb()
    await world.search(kb_id)
    del world.catalog.bases[kb_id]
    with pytest.raises(NotFound):
        await world.search(kb_id, query="again")


async def test_search_when_query_repeats_then_it_is_embedded_once_until_the_cache_expires(world: World):
    kb_id = world.kb()
    await world.search(kb_id)
    await world.search(kb_id)
    assert len(world.embedder.calls) == 1
    hits = world.metrics.registry.get_sample_value("pergamon_search_query_cache_total", {"outcome": "hit"})
    assert hits == 1
    world.clock.advance(301)
    await world.search(kb_id, within_s=10)
    assert len(world.embedder.calls) == 2


async def test_search_when_many_queries_then_the_cache_stays_bounded():
    world = World(cache_size=2)
    kb_id = world.kb()
    for n in range(5):
        await world.search(kb_id, query=f"q{n}")
    assert len(world.cache) == 2


async def test_search_when_done_then_each_stage_is_reported_and_counted(world: World):
    kb_id = world.kb()
    many(world, kb_id, 60)
    reply = await world.search(kb_id, rerank=True)
    counts = {report.stage: (report.candidates_in, report.candidates_out) for report in reply.stages}
    assert counts == {
        "plan": (0, 0),
        "embed": (0, 0),
        "query": (0, 120),
        "fuse": (120, 60),
        "fetch": (60, 60),
        "rerank": (60, 60),
        "cut": (60, 5),
    }
    for name in counts:
        labels = {"stage": name, "state": "OK"}
        assert world.metrics.registry.get_sample_value("pergamon_search_stage_seconds_count", labels) == 1


async def test_search_when_a_weight_is_stored_as_0_then_that_list_is_left_out(world: World):
    kb_id = world.kb(retrieval=replace(RetrievalDefaults(), bm25_weight=0.0))
    world.chunk(kb_id, "a", dense=0.9, bm25=1.0)
    reply = await world.search(kb_id)
    assert world.index.queries[0].sparse == ()
    assert reply.passages[0].scores.fused == pytest.approx(1 / 61)


async def test_search_when_fusion_is_off_then_dense_only_unless_hybrid_is_asked_for(world: World):
    kb_id = world.kb(retrieval=RetrievalDefaults(fusion=False))
    await world.search(kb_id)
    await world.search(kb_id, mode=SearchMode.HYBRID)
    assert [len(query.sparse) for query in world.index.queries] == [0, 1]


async def test_search_when_top_k_is_unset_then_as_stored_and_for_a_context_the_result_count(world: World):
    kb_id = world.kb()
    many(world, kb_id, 40)
    assert len((await world.search(kb_id)).passages) == 5
    assert len((await world.search(kb_id, for_context=True)).passages) == 12
