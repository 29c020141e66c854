"""Knowledge bases: fields, idempotency, paging, change, deletion, isolation."""

import asyncio

import pytest
from catalog_builders import OTHER, TENANT, Clock, hidden, kb_spec, lease, make_kb, put, put_live

from services.catalog.catalog import Catalog
from services.catalog.job_types import JobKind, JobState
from services.catalog.types import DocumentState, KnowledgeBaseChange, RetrievalDefaults
from services.common.errors import InvalidRequest, NotFound, Reason, ServiceError
from services.domain.chunks import Chunking, ChunkUnit
from services.domain.ids import KnowledgeBaseId
from services.domain.scores import SearchMode


async def test_create_when_read_back_then_every_field_is_kept(catalog: Catalog) -> None:
    chunking = Chunking(unit=ChunkUnit.TOKENS, size=512, overlap=64)
    retrieval = RetrievalDefaults(mode=SearchMode.KEYWORD, rerank=True, threshold=0.25, dense_weight=0.7)
    made = await make_kb(
        catalog,
        chunking=chunking,
        effective_chunk_size=480,
        retrieval=retrieval,
        labels={"team": "hr"},
        description="x",
    )
    read = await catalog.knowledge_bases.get(TENANT, made.id)
    assert read == made
    assert (read.chunking, read.effective_chunk_size, read.retrieval) == (chunking, 480, retrieval)
    assert (read.labels, read.index.collection, read.index.dimensions) == ({"team": "hr"}, "e5_384_v1", 384)


async def test_create_when_the_request_id_repeats_then_the_first_answer(catalog: Catalog) -> None:
    first, second = await asyncio.gather(make_kb(catalog, request_id="r1"), make_kb(catalog, request_id="r1"))
    assert first.id == second.id
    assert (await make_kb(catalog, OTHER, request_id="r1")).id != first.id


async def test_create_when_the_request_id_names_another_request_then_refused(catalog: Catalog) -> None:
    await make_kb(catalog, request_id="r1")
    with pytest.raises(ServiceError) as raised:
        await make_kb(catalog, request_id="r1", name="other")
    assert raised.value.error_reason is Reason.REQUEST_ID_REUSED


async def test_create_when_the_request_id_is_a_day_old_then_it_is_forgotten(catalog: Catalog, clock: Clock) -> None:
    first = await make_kb(catalog, request_id="r1")
    clock.forward(86_401)
    assert (await make_kb(catalog, request_id="r1")).id != first.id


async def test_list_when_others_are_inserted_between_pages_then_each_is_seen_once(catalog: Catalog) -> None:
    made = [(await make_kb(catalog, name=f"kb{i}")).id for i in range(5)]
    await make_kb(catalog, OTHER)
    seen: list[KnowledgeBaseId] = []
    token = ""
    while True:
        page = await catalog.knowledge_bases.list(TENANT, page_size=2, page_token=token)
        seen += [kb.id for kb in page.entries]
        token = page.next_page_token
        if not token or len(seen) > 20:
            break
        await make_kb(catalog, name="late") if len(seen) < 4 else None
    assert [kb_id for kb_id in seen if kb_id in made] == sorted(made)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("token", ["nonsense", "!!", "AAAA", "é"])
async def test_list_when_the_token_is_not_ours_then_refused(catalog: Catalog, token: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await catalog.knowledge_bases.list(TENANT, page_token=token)
    assert raised.value.error_reason is Reason.INVALID_PAGE_TOKEN


async def test_list_when_the_token_is_of_another_list_then_refused(catalog: Catalog) -> None:
    for _ in range(2):
        await make_kb(catalog)
    page = await catalog.knowledge_bases.list(TENANT, page_size=1)
    with pytest.raises(InvalidRequest):
        await catalog.knowledge_bases.list(OTHER, page_token=page.next_page_token)


async def test_update_when_fields_are_given_then_only_they_change(catalog: Catalog, clock: Clock) -> None:
    made = await make_kb(catalog, description="old", labels={"a": "1"})
    clock.forward(5)
    change = KnowledgeBaseChange(name="new", retrieval=RetrievalDefaults(top_k=7), chunking=made.chunking)
    changed = await catalog.knowledge_bases.update(TENANT, made.id, lambda _: change)
    assert (changed.name, changed.retrieval.top_k) == ("new", 7)
    assert (changed.description, changed.labels) == ("old", {"a": "1"})
    assert changed.updated_time > made.updated_time


@pytest.mark.parametrize(
    "change", [KnowledgeBaseChange(chunking=Chunking(size=9)), KnowledgeBaseChange(embedding_model="m")]
)
async def test_update_when_the_field_is_fixed_then_refused(catalog: Catalog, change: KnowledgeBaseChange) -> None:
    made = await make_kb(catalog)
    with pytest.raises(ServiceError) as raised:
        await catalog.knowledge_bases.update(TENANT, made.id, lambda _: change)
    assert raised.value.error_reason is Reason.IMMUTABLE_FIELD


async def test_statistics_when_documents_live_and_wait_then_they_are_counted(catalog: Catalog) -> None:
    kb = await make_kb(catalog)
    await put_live(catalog, kb, "a", "one")
    await put(catalog, kb, "b", "four")
    found = await catalog.knowledge_bases.get(TENANT, kb.id)
    assert found.statistics.documents == {DocumentState.DONE: 1, DocumentState.PENDING: 1}
    assert (found.statistics.chunk_count, found.statistics.token_count, found.statistics.size_bytes) == (4, 40, 7)
    assert found.index.average_length == 10.0


async def test_delete_when_it_returns_then_nothing_of_it_is_visible(catalog: Catalog) -> None:
    kb = await make_kb(catalog)
    live = await put_live(catalog, kb, "a", "one")
    waiting = await put(catalog, kb, "b", "two")
    await catalog.knowledge_bases.delete(TENANT, kb.id)
    for call in (
        catalog.knowledge_bases.get(TENANT, kb.id),
        catalog.knowledge_bases.delete(TENANT, kb.id),
        catalog.documents.get(TENANT, live.document_id),
        catalog.documents.list(TENANT, kb.id),
        catalog.jobs.get(TENANT, waiting.job_id),
        catalog.jobs.list(TENANT, kb_id=kb.id),
        hidden(catalog, kb.id),
        put(catalog, kb, "c", "three"),
    ):
        with pytest.raises(NotFound):
            await call
    assert (await catalog.knowledge_bases.list(TENANT)).entries == ()
    assert await catalog.documents.documents_by_version(TENANT, [live.version]) == {}
    assert not await catalog.versions.start(waiting.version)
    (job,) = await lease(catalog, limit=10)
    assert (job.kind, job.knowledge_base_id) == (JobKind.PURGE, kb.id)


async def test_delete_when_a_worker_holds_a_lease_then_the_purge_waits_for_its_end(
    catalog: Catalog, clock: Clock
) -> None:
    kb = await make_kb(catalog)
    await put(catalog, kb)
    (job,) = await lease(catalog, lease_s=30)
    await catalog.knowledge_bases.delete(TENANT, kb.id)
    assert not await catalog.jobs.heartbeat(job.id, "worker", lease_s=30)
    assert await lease(catalog) == ()
    clock.forward(31)
    assert [job.kind for job in await lease(catalog)] == [JobKind.PURGE]


async def test_purge_done_when_the_purge_ends_then_only_its_job_is_left(catalog: Catalog) -> None:
    kb = await make_kb(catalog)
    await put_live(catalog, kb)
    assert not await catalog.knowledge_bases.purge_done(kb.id)
    assert (await catalog.documents.list(TENANT, kb.id)).entries
    await catalog.knowledge_bases.delete(TENANT, kb.id)
    (job,) = await lease(catalog)
    assert [entry.knowledge_base_id for entry in await catalog.cleanup.pending()] == [kb.id]
    assert await catalog.knowledge_bases.purge_done(kb.id)
    assert await catalog.cleanup.pending() == ()
    assert await catalog.jobs.finish(job.id, "worker")
    assert [(j.kind, j.state) for j in (await catalog.jobs.list(TENANT)).entries] == [(JobKind.PURGE, JobState.DONE)]


async def test_names_when_empty_or_too_long_then_refused(catalog: Catalog) -> None:
    for name in ("", "  ", "x" * 201):
        with pytest.raises(InvalidRequest):
            await catalog.knowledge_bases.create(TENANT, kb_spec(name=name))
