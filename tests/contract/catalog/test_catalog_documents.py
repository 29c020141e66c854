"""Documents: what an upload does, what replaces what, what deletion leaves."""

from datetime import UTC, datetime

import pytest
from catalog_builders import OTHER, TENANT, Clock, hidden, lease, make_kb, put, put_live, stats, upload

from services.catalog.catalog import Catalog
from services.catalog.job_types import JobKind, JobState
from services.catalog.types import DocumentState, KnowledgeBase, OnDuplicate, UploadResult
from services.common.errors import InvalidRequest, NotFound, Reason, ServiceError
from services.domain.blocks import DocumentKind, DocumentMetadata, ParseWarning
from services.domain.ids import DocumentId, DocVersionId, KnowledgeBaseId


@pytest.fixture
async def kb(catalog: Catalog) -> KnowledgeBase:
    return await make_kb(catalog)


async def test_upload_when_the_name_is_new_then_a_pending_document_and_a_job(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    metadata = DocumentMetadata(
        title="T", tags=("a", "b"), authoritative=True, created_time=datetime(2026, 1, 2, tzinfo=UTC), labels={"n": 3}
    )
    outcome = await put(catalog, kb, metadata=metadata, blob_key="acme/x")
    assert outcome.result is UploadResult.NEW
    document = await catalog.documents.get(TENANT, outcome.document_id)
    assert (document.state, document.metadata, document.live_version) == (DocumentState.PENDING, metadata, None)
    assert (document.newest_version, document.size_bytes, document.kind) == (outcome.version, 5, None)
    assert (await catalog.versions.get(TENANT, outcome.version)).blob_key == "acme/x"
    assert outcome.job_id is not None
    job = await catalog.jobs.get(TENANT, outcome.job_id)
    assert (job.kind, job.version, job.document_id) == (JobKind.INGEST, outcome.version, outcome.document_id)


async def test_upload_when_activated_then_the_document_is_done_and_the_callers_metadata_wins(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    outcome = await put(catalog, kb, metadata=DocumentMetadata(title="mine", labels={"a": 1}))
    await catalog.versions.start(outcome.version)
    assert (await catalog.documents.get(TENANT, outcome.document_id)).state is DocumentState.RUNNING
    warning = ParseWarning(code="ENCODING", message="guessed", page=2)
    found = DocumentMetadata(title="its", author="Ann", labels={"a": 2, "b": True})
    done = stats(metadata=found, kind=DocumentKind.PDF, page_count=3, warnings=(warning,))
    assert await catalog.versions.activate(outcome.version, done)
    document = await catalog.documents.get(TENANT, outcome.document_id)
    assert document.metadata == DocumentMetadata(title="mine", author="Ann", labels={"a": 1, "b": True})
    assert (document.state, document.kind, document.page_count) == (DocumentState.DONE, DocumentKind.PDF, 3)
    assert (document.chunk_count, document.token_count, document.warnings) == (4, 40, (warning,))
    assert document.live_version == outcome.version


async def test_upload_when_the_request_id_repeats_then_the_first_outcome(catalog: Catalog, kb: KnowledgeBase) -> None:
    first = await put(catalog, kb, request_id="r")
    assert await put(catalog, kb, request_id="r") == first
    assert first.result is UploadResult.NEW
    with pytest.raises(ServiceError) as raised:
        await put(catalog, kb, content="other", request_id="r")
    assert raised.value.error_reason is Reason.REQUEST_ID_REUSED


async def test_upload_when_same_name_other_bytes_then_replacement_beside_the_live_version(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    old = await put_live(catalog, kb, "a", "one")
    new = await put(catalog, kb, "a", "two!")
    assert (new.result, new.document_id) == (UploadResult.REPLACEMENT, old.document_id)
    document = await catalog.documents.get(TENANT, old.document_id)
    assert (document.state, document.live_version, document.newest_version) == (
        DocumentState.PENDING,
        old.version,
        new.version,
    )
    assert document.older_version_live
    assert await hidden(catalog, kb.id) == ()  # it has no points yet
    assert await catalog.versions.start(new.version)
    assert await hidden(catalog, kb.id) == (new.version,)
    assert await catalog.versions.activate(new.version, stats(chunks=10, length=50))
    assert await hidden(catalog, kb.id) == (old.version,)
    index = (await catalog.knowledge_bases.get(TENANT, kb.id)).index
    assert (index.chunk_count, index.bm25_length_total, index.average_length) == (10, 50, 5.0)


async def test_upload_when_a_newer_one_comes_then_the_one_in_flight_is_superseded(
    catalog: Catalog, kb: KnowledgeBase, clock: Clock
) -> None:
    first = await put(catalog, kb, "a", "one")
    (job,) = await lease(catalog, lease_s=30)
    await catalog.versions.start(first.version)
    second = await put(catalog, kb, "a", "two")
    assert not await catalog.jobs.heartbeat(job.id, "worker", lease_s=30)
    assert not await catalog.versions.activate(first.version, stats())
    assert not await catalog.versions.start(first.version)
    assert await hidden(catalog, kb.id) == (first.version,)
    assert await catalog.versions.start(second.version)
    assert await hidden(catalog, kb.id) == (first.version, second.version)
    assert [j.kind for j in await lease(catalog, limit=9)] == [JobKind.INGEST]
    clock.forward(31)
    assert [(j.kind, j.version) for j in await lease(catalog, kinds=(JobKind.RETIRE,))] == [
        (JobKind.RETIRE, first.version)
    ]


async def test_upload_when_bytes_equal_the_version_in_flight_then_unchanged(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    first = await put(catalog, kb, "a", "one")
    again = await put(catalog, kb, "a", "one")
    assert (again.result, again.version, again.job_id) == (UploadResult.UNCHANGED, first.version, first.job_id)
    assert len((await catalog.jobs.list(TENANT)).entries) == 1


async def test_upload_when_bytes_equal_the_live_version_then_unchanged_and_a_failed_one_is_forgotten(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    live = await put_live(catalog, kb, "a", "one")
    bad = await put(catalog, kb, "a", "two")
    await catalog.versions.fail(bad.version, "NO_TEXT", "nothing in it")
    again = await put(catalog, kb, "a", "one")
    assert (again.result, again.version, again.job_id) == (UploadResult.UNCHANGED, live.version, None)
    document = await catalog.documents.get(TENANT, live.document_id)
    assert (document.state, document.error, document.newest_version) == (DocumentState.DONE, None, live.version)


async def test_upload_when_bytes_equal_the_live_version_then_one_in_flight_is_superseded(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    live = await put_live(catalog, kb, "a", "one")
    newer = await put(catalog, kb, "a", "two")
    await put(catalog, kb, "a", "one")
    assert not await catalog.versions.start(newer.version)
    document = await catalog.documents.get(TENANT, live.document_id)
    assert (document.state, document.live_version) == (DocumentState.DONE, live.version)


async def test_upload_when_only_metadata_is_new_then_it_is_taken_over_with_one_job(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    live = await put(catalog, kb, "a", "one", metadata=DocumentMetadata(title="old"))
    await catalog.versions.activate(live.version, stats(metadata=DocumentMetadata(author="Ann")))
    first = await put(catalog, kb, "a", "one", metadata=DocumentMetadata(title="new"))
    second = await put(catalog, kb, "a", "one", metadata=DocumentMetadata(title="newer"))
    assert first.job_id == second.job_id is not None
    document = await catalog.documents.get(TENANT, live.document_id)
    assert document.metadata == DocumentMetadata(title="newer", author="Ann")
    same = await put(catalog, kb, "a", "one", metadata=DocumentMetadata(title="newer"))
    assert same.job_id is None


async def test_upload_when_metadata_comes_during_ingestion_then_activation_keeps_it(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    outcome = await put(catalog, kb, "a", "one", metadata=DocumentMetadata(title="old"))
    await lease(catalog)
    await put(catalog, kb, "a", "one", metadata=DocumentMetadata(title="new"))
    assert await lease(catalog, limit=9) == (), "new metadata waits for the ingestion to end"
    await catalog.versions.activate(outcome.version, stats(metadata=DocumentMetadata(title="its")))
    await catalog.jobs.finish(outcome.job_id, "worker")
    assert (await catalog.documents.get(TENANT, outcome.document_id)).metadata.title == "new"
    assert [job.kind for job in await lease(catalog, limit=9)] == [JobKind.UPDATE_METADATA]


async def test_upload_when_another_name_has_the_bytes_then_duplicate_unless_allowed(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    first = await put(catalog, kb, "a", "one")
    with pytest.raises(ServiceError) as raised:
        await put(catalog, kb, "b", "one", request_id="r")
    assert raised.value.error_reason is Reason.DUPLICATE_DOCUMENT
    assert raised.value.metadata["duplicate_of"] == first.document_id
    assert [d.name for d in (await catalog.documents.list(TENANT, kb.id)).entries] == ["a"]
    allowed = await put(catalog, kb, "b", "one", on_duplicate=OnDuplicate.ALLOW, request_id="r2")
    assert allowed.result is UploadResult.NEW
    elsewhere = await make_kb(catalog)
    assert (await put(catalog, elsewhere, "b", "one")).result is UploadResult.NEW


async def test_upload_when_the_twin_failed_or_was_deleted_then_no_duplicate(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    failed = await put(catalog, kb, "a", "one")
    await catalog.versions.fail(failed.version, "NO_TEXT", "nothing")
    second = await put(catalog, kb, "b", "one")
    await catalog.documents.delete(TENANT, second.document_id)
    assert (await put(catalog, kb, "c", "one")).result is UploadResult.NEW


async def test_upload_when_fields_are_wrong_then_all_violations(catalog: Catalog, kb: KnowledgeBase) -> None:
    from dataclasses import replace

    with pytest.raises(InvalidRequest) as raised:
        await catalog.documents.accept_upload(TENANT, kb.id, replace(upload(), name="", sha256="X", size_bytes=0))
    assert [v.field for v in raised.value.violations] == ["name", "sha256", "size_bytes"]


async def test_fail_when_nothing_is_live_then_failed_else_the_old_one_stays(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    only = await put(catalog, kb, "a", "one")
    assert await catalog.versions.fail(only.version, "NO_TEXT", "nothing in it")
    document = await catalog.documents.get(TENANT, only.document_id)
    assert document.state is DocumentState.FAILED
    assert document.error is not None
    assert document.error.reason == "NO_TEXT"
    assert not await catalog.versions.activate(only.version, stats())
    live = await put_live(catalog, kb, "b", "two")
    newer = await put(catalog, kb, "b", "three")
    await catalog.versions.fail(newer.version, "NO_TEXT", "nothing in it")
    document = await catalog.documents.get(TENANT, live.document_id)
    assert (document.state, document.live_version, document.error is None) == (DocumentState.DONE, live.version, False)
    assert document.older_version_live


async def test_delete_when_it_returns_then_invisible_and_its_points_are_hidden_until_cleaned(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    live = await put_live(catalog, kb, "a", "one")
    newer = await put(catalog, kb, "a", "two")
    await catalog.documents.delete(TENANT, live.document_id)
    for call in (catalog.documents.get, catalog.documents.delete):
        with pytest.raises(NotFound):
            await call(TENANT, live.document_id)
    assert (await catalog.documents.list(TENANT, kb.id)).entries == ()
    assert await catalog.documents.documents_by_version(TENANT, [live.version, newer.version]) == {}
    assert await hidden(catalog, kb.id) == (live.version, newer.version)
    assert (await catalog.knowledge_bases.get(TENANT, kb.id)).index.chunk_count == 0
    assert (await catalog.jobs.get(TENANT, newer.job_id)).state is JobState.CANCELLED
    retired = await lease(catalog, limit=9)
    assert {(job.kind, job.version) for job in retired} == {
        (JobKind.RETIRE, live.version),
        (JobKind.RETIRE, newer.version),
    }
    assert {entry.version for entry in await catalog.cleanup.pending()} == {live.version, newer.version}
    assert await catalog.versions.retire_done(live.version)
    assert await hidden(catalog, kb.id) == (newer.version,)
    assert await catalog.versions.retire_done(newer.version)
    assert await hidden(catalog, kb.id) == ()
    assert await catalog.cleanup.pending() == ()


async def test_delete_when_the_worker_activates_later_then_the_document_does_not_come_back(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    outcome = await put(catalog, kb)
    await catalog.versions.start(outcome.version)
    await catalog.documents.delete(TENANT, outcome.document_id)
    assert not await catalog.versions.activate(outcome.version, stats())
    assert not await catalog.versions.fail(outcome.version, "NO_TEXT", "x")
    with pytest.raises(NotFound):
        await catalog.documents.get(TENANT, outcome.document_id)
    again = await put(catalog, kb)
    assert (again.result, again.document_id == outcome.document_id) == (UploadResult.NEW, False)


async def test_retire_done_when_the_version_lives_then_refused(catalog: Catalog, kb: KnowledgeBase) -> None:
    live = await put_live(catalog, kb)
    assert not await catalog.versions.retire_done(live.version)
    assert not await catalog.versions.retire_done(DocVersionId(999))
    assert await catalog.documents.documents_by_version(TENANT, [live.version])


async def test_retire_job_when_a_version_is_replaced_then_it_waits_for_the_longest_search(
    catalog: Catalog, kb: KnowledgeBase, clock: Clock
) -> None:
    old = await put_live(catalog, kb, "a", "one")
    new = await put_live(catalog, kb, "a", "two")
    assert await lease(catalog) == ()
    assert set(await catalog.documents.documents_by_version(TENANT, [old.version, new.version])) == {
        old.version,
        new.version,
    }
    clock.forward(61)
    assert [job.version for job in await lease(catalog)] == [old.version]
    assert await catalog.versions.retire_done(old.version)
    with pytest.raises(NotFound):
        await catalog.versions.get(TENANT, old.version)


async def test_list_when_filtered_then_only_matches_in_stable_pages(catalog: Catalog, kb: KnowledgeBase) -> None:
    for name in ("Report 1", "Report 2", "report 3", "100%", "Report 4"):
        await put(catalog, kb, name, name)
    await put_live(catalog, kb, "Report 9", "nine")
    first = await catalog.documents.list(TENANT, kb.id, name_prefix="Report", page_size=2)
    await put(catalog, kb, "Report 0", "zero")
    second = await catalog.documents.list(
        TENANT, kb.id, name_prefix="Report", page_size=10, page_token=first.next_page_token
    )
    names = [d.name for d in (*first.entries, *second.entries)]
    assert sorted(names) == ["Report 0", "Report 1", "Report 2", "Report 4", "Report 9"]
    done = await catalog.documents.list(TENANT, kb.id, states=[DocumentState.DONE])
    assert [d.name for d in done.entries] == ["Report 9"]
    assert [d.name for d in (await catalog.documents.list(TENANT, kb.id, name_prefix="100%")).entries] == ["100%"]
    with pytest.raises(InvalidRequest):
        await catalog.documents.list(TENANT, kb.id, page_token=first.next_page_token)


async def test_unreferenced_blobs_when_an_upload_died_then_its_key_is_named(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    await put(catalog, kb, blob_key="k1")
    assert await catalog.versions.unreferenced_blobs(TENANT, kb.id, ("k1", "k2")) == ("k2",)


async def test_isolation_when_another_tenant_asks_then_exactly_as_for_an_unknown_id(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    outcome = await put_live(catalog, kb)
    no_kb, no_doc = KnowledgeBaseId("kb_" + "0" * 26), DocumentId("doc_" + "0" * 26)
    calls = [
        (lambda t, i: catalog.documents.get(t, i), outcome.document_id, no_doc),
        (lambda t, i: catalog.documents.delete(t, i), outcome.document_id, no_doc),
        (lambda t, i: catalog.documents.list(t, i), kb.id, no_kb),
        (lambda t, i: catalog.documents.accept_upload(t, i, upload()), kb.id, no_kb),
        (lambda t, i: catalog.knowledge_bases.get(t, i), kb.id, no_kb),
        (lambda t, i: catalog.knowledge_bases.delete(t, i), kb.id, no_kb),
        (lambda t, i: hidden(catalog, i, t), kb.id, no_kb),
        (lambda t, i: catalog.jobs.enqueue(t, i, JobKind.REWRITE_SPARSE), kb.id, no_kb),
        (lambda t, i: catalog.jobs.list(t, kb_id=i), kb.id, no_kb),
    ]
    for call, theirs, unknown in calls:
        with pytest.raises(NotFound) as of_theirs:
            await call(OTHER, theirs)
        with pytest.raises(NotFound) as of_unknown:
            await call(OTHER, unknown)
        assert of_theirs.value.error_reason is of_unknown.value.error_reason
        assert str(of_theirs.value) == str(of_unknown.value).replace(unknown, theirs)
    assert await catalog.documents.documents_by_version(OTHER, [outcome.version]) == {}
    with pytest.raises(NotFound):
        await catalog.versions.get(OTHER, outcome.version)
    assert (await catalog.documents.get(TENANT, outcome.document_id)).state is DocumentState.DONE
