"""What clients of the retriever see, over real gRPC, engine and catalogue."""

from datetime import UTC, datetime

import grpc
import pytest
from pergamon.client import (
    Combination,
    ContextFormat,
    InvalidRequestError,
    NotFoundError,
    SearchMode,
    UnavailableError,
    filters,
)
from pergamon.retriever.v1 import retriever_pb2 as pb

from services.common.errors import Overloaded, Reason, ServiceError
from services.domain.blocks import DocumentMetadata
from services.domain.ids import new_id
from tests.integration.retriever.conftest import GLOBEX, Bench

TRAVEL = "The company pays for travel by train."
MEALS = "Meals are paid up to forty euros a day."
KILN = "The kiln reaches a temperature of 1280 degrees."


@pytest.mark.parametrize(
    "mode", [SearchMode.SEARCH_MODE_HYBRID, SearchMode.SEARCH_MODE_SEMANTIC, SearchMode.SEARCH_MODE_KEYWORD]
)
async def test_search_when_a_document_answers_then_it_is_first_with_its_proof(bench: Bench, mode):
    kb = await bench.kb()
    updated = datetime(2026, 3, 4, tzinfo=UTC)
    metadata = DocumentMetadata(title="Travel", author="Ada", source_url="https://h.example/t", updated_time=updated)
    document_id = await bench.put(kb, "travel.pdf", TRAVEL, MEALS, metadata=metadata)
    await bench.put(kb, "kiln.pdf", KILN)
    reply = await bench.client().search("who pays for travel?", kb.id, mode=mode, top_k=2)
    best = reply.passages[0]
    assert (best.text, best.document_id, best.document_name) == (TRAVEL, document_id, "travel.pdf")
    assert (best.title, best.author, best.source_url) == ("Travel", "Ada", "https://h.example/t")
    assert (list(best.section), best.first_page, best.ordinal) == (["Handbook", "Travel"], 1, 0)
    assert (best.knowledge_base_id, best.updated_time.ToDatetime(UTC)) == (kb.id, updated)
    hybrid = mode == SearchMode.SEARCH_MODE_HYBRID
    assert best.scores.HasField("dense") == (hybrid or mode == SearchMode.SEARCH_MODE_SEMANTIC)
    assert best.scores.HasField("bm25") == (hybrid or mode == SearchMode.SEARCH_MODE_KEYWORD)
    assert best.scores.fused_rank == 1
    assert [stage.stage for stage in reply.stages] == ["plan", "embed", "query", "fuse", "fetch", "rerank", "cut"]
    assert len(bench.models.embed_calls) == 1


async def test_search_when_a_filter_is_given_then_only_what_it_lets_through(bench: Bench):
    kb = await bench.kb()
    await bench.put(kb, "a.pdf", TRAVEL, metadata=DocumentMetadata(author="Ada"))
    await bench.put(kb, "b.pdf", MEALS, metadata=DocumentMetadata(author="Bob"))
    reply = await bench.client().search("travel meals", kb.id, filter=filters.equals("author", "Bob"))
    assert [passage.document_name for passage in reply.passages] == ["b.pdf"]
    nothing = await bench.client().search("travel meals", kb.id, filter=filters.is_in("author", []))
    assert list(nothing.passages) == []


async def test_search_when_the_credential_has_a_scope_then_a_request_cannot_widen_it(bench: Bench):
    kb = await bench.kb()
    await bench.put(kb, "a.pdf", TRAVEL, metadata=DocumentMetadata(author="Ada"))
    await bench.put(kb, "b.pdf", MEALS, metadata=DocumentMetadata(author="Bob"))
    scoped = bench.client("scoped")
    assert [p.document_name for p in (await scoped.search("travel meals", kb.id)).passages] == ["a.pdf"]
    wider = filters.any_of(filters.equals("author", "Ada"), filters.equals("author", "Bob"))
    assert [p.document_name for p in (await scoped.search("travel", kb.id, filter=wider)).passages] == ["a.pdf"]
    assert list((await scoped.search("meals", kb.id, filter=filters.equals("author", "Bob"))).passages) == []


async def test_search_when_knowledge_base_is_anothers_then_as_unknown(bench: Bench):
    kb = await bench.kb(tenant=GLOBEX)
    await bench.put(kb, "secret.pdf", TRAVEL)
    failures = []
    for kb_id in (kb.id, new_id("kb")):
        with pytest.raises(NotFoundError) as caught:
            await bench.client("acme").search("travel", kb_id)
        failures.append((caught.value.reason, caught.value.message.replace(kb_id, "")))
    assert failures[0] == failures[1]
    assert failures[0][0] == Reason.KNOWLEDGE_BASE_NOT_FOUND.name
    assert len((await bench.client("globex").search("travel", kb.id)).passages) == 1


async def test_search_when_a_version_is_not_live_then_it_is_not_found(bench: Bench):
    kb = await bench.kb()
    await bench.put(kb, "a.pdf", TRAVEL)
    await bench.put(kb, "a.pdf", "The company pays for travel by plane.", live=False)
    reply = await bench.client().search("who pays for travel?", kb.id)
    assert [passage.text for passage in reply.passages] == [TRAVEL]


async def test_search_when_a_document_is_replaced_or_deleted_then_at_once(bench: Bench):
    kb = await bench.kb()
    await bench.put(kb, "a.pdf", TRAVEL)
    document_id = await bench.put(kb, "a.pdf", MEALS)
    client = bench.client()
    assert [passage.text for passage in (await client.search("travel meals", kb.id)).passages] == [MEALS]
    await bench.catalog.documents.delete(kb.tenant_id, document_id)
    assert list((await client.search("travel meals", kb.id)).passages) == []


async def test_search_when_nothing_was_ever_ingested_then_no_results_and_no_error(bench: Bench):
    kb = await bench.kb()
    assert list((await bench.client().search("travel", kb.id)).passages) == []


async def test_search_when_merged_then_one_order_over_all_knowledge_bases(bench: Bench):
    one, two = await bench.kb("one"), await bench.kb("two")
    await bench.put(one, "kiln.pdf", KILN)
    await bench.put(two, "travel.pdf", TRAVEL)
    client = bench.client()
    merged = await client.search("who pays for travel?", [one.id, two.id], combination=Combination.COMBINATION_MERGED)
    routed = await client.search("who pays for travel?", [one.id, two.id])
    assert [passage.text for passage in merged.passages] == [TRAVEL, KILN]
    assert [passage.text for passage in routed.passages] == [KILN, TRAVEL]


async def test_search_when_reranked_then_scores_and_threshold_are_the_models(bench: Bench):
    kb = await bench.kb()
    await bench.put(kb, "a.pdf", KILN, "pays for travel", "travel")
    reply = await bench.client().search(
        "pays for travel", kb.id, rerank=True, similarity_threshold=0.4, include_dropped=True
    )
    assert [passage.text for passage in reply.passages] == ["pays for travel", "travel"]
    best = reply.passages[0].scores.rerank
    assert (best.logit, best.label) == (2.0, pb.RELEVANCE_LABEL_HIGH)
    assert [dropped.reason for dropped in reply.dropped] == [pb.DROP_REASON_THRESHOLD]


async def test_search_when_the_reranker_is_overloaded_then_the_fused_order_and_the_reason(bench: Bench):
    kb = await bench.kb()
    await bench.put(kb, "a.pdf", TRAVEL, KILN)
    bench.models.rerank_failure = Overloaded("full", retry_after_s=1.0)
    reply = await bench.client().search("who pays for travel?", kb.id, rerank=True)
    assert reply.passages[0].text == TRAVEL
    (report,) = [stage for stage in reply.stages if stage.stage == "rerank"]
    assert (report.state, report.reason) == (pb.STAGE_STATE_DEGRADED, "OVERLOADED")


async def test_search_when_the_query_is_not_in_the_rerankers_language_then_it_is_left_out(bench: Bench):
    kb = await bench.kb()
    await bench.put(kb, "a.pdf", TRAVEL)
    reply = await bench.client().search("Wer bezahlt die Reise mit der Eisenbahn?", kb.id, rerank=True)
    (report,) = [stage for stage in reply.stages if stage.stage == "rerank"]
    assert (report.state, report.reason) == (
        pb.STAGE_STATE_DEGRADED,
        "model judge is not made for queries in de",
    )


async def test_search_when_the_embedder_fails_then_embedder_unavailable(bench: Bench):
    kb = await bench.kb()
    await bench.put(kb, "a.pdf", TRAVEL)
    bench.models.embed_failure = ServiceError("draining", reason=Reason.SHUTTING_DOWN)
    with pytest.raises(UnavailableError) as caught:
        await bench.client().search("travel", kb.id)
    assert caught.value.reason == Reason.EMBEDDER_UNAVAILABLE.name


async def test_search_when_the_embedder_does_not_know_the_model_then_model_not_found(bench: Bench):
    kb = await bench.kb()
    await bench.put(kb, "a.pdf", TRAVEL)
    bench.models.embed_failure = ServiceError("no such model", reason=Reason.MODEL_NOT_FOUND)
    with pytest.raises(NotFoundError) as caught:
        await bench.client().search("travel", kb.id)
    assert caught.value.reason == Reason.MODEL_NOT_FOUND.name


async def test_search_when_the_request_is_bad_then_all_violations_arrive(bench: Bench):
    kb = await bench.kb()
    with pytest.raises(InvalidRequestError) as caught:
        await bench.client().search("", kb.id, top_k=101, dense_weight=-1.0)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [field for field, _ in caught.value.violations] == ["query", "top_k", "dense_weight"]


async def test_retrieve_when_two_knowledge_bases_are_routed_then_the_context_has_a_heading_for_each(bench: Bench):
    one, two = await bench.kb("Policies"), await bench.kb("Workshop")
    await bench.put(one, "travel.pdf", TRAVEL)
    await bench.put(two, "kiln.pdf", KILN)
    reply = await bench.client().retrieve("travel", [one.id, two.id], format=ContextFormat.CONTEXT_FORMAT_BLOCKS)
    assert reply.context.text == (
        "=== KNOWLEDGE BASE: Policies ===\n\n"
        f"=== SOURCE: travel.pdf > Handbook > Travel ===\n[Page 1] {TRAVEL}\n=== END ===\n\n"
        "=== KNOWLEDGE BASE: Workshop ===\n\n"
        f"=== SOURCE: kiln.pdf > Handbook > Travel ===\n[Page 1] {KILN}\n=== END ==="
    )
    assert (list(reply.context.passages), reply.context.omitted) == ([0, 1], 0)
