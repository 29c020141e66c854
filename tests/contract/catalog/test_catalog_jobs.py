"""Jobs: leases, takeover, fairness, ends, watching, pruning."""

import asyncio

import pytest
from catalog_builders import OTHER, TENANT, Clock, lease, make_kb, put, put_live

from services.catalog.catalog import Catalog, connect
from services.catalog.job_types import JobKind, JobState, Progress
from services.catalog.settings import CatalogSettings
from services.catalog.types import DocumentState, KnowledgeBase
from services.common.errors import InvalidRequest, NotFound
from services.domain.blocks import ParseWarning
from services.domain.ids import JobId


@pytest.fixture
async def kb(catalog: Catalog) -> KnowledgeBase:
    return await make_kb(catalog)


async def test_lease_when_two_lease_at_once_then_no_job_goes_to_both(url: str) -> None:
    settings = CatalogSettings(url=url, pool_size=2)
    first, second = await connect(settings), await connect(settings)
    kb = await make_kb(first)
    for number in range(20):
        await put(first, kb, f"{number}", f"{number}")
    taken: list[JobId] = []

    async def work(catalog: Catalog, owner: str) -> None:
        while jobs := await lease(catalog, owner, limit=3):
            taken.extend(job.id for job in jobs)

    await asyncio.gather(work(first, "a"), work(second, "b"), work(first, "c"))
    assert len(taken) == 20
    assert len(set(taken)) == 20
    await first.aclose()
    await second.aclose()


async def test_lease_when_it_expires_then_another_takes_over_with_the_checkpoint(
    catalog: Catalog, kb: KnowledgeBase, clock: Clock
) -> None:
    await put(catalog, kb)
    (job,) = await lease(catalog, "a", lease_s=30)
    assert await catalog.jobs.checkpoint(job.id, "a", {"page": 7})
    clock.forward(20)
    assert await catalog.jobs.heartbeat(job.id, "a", lease_s=30)
    clock.forward(20)
    assert await lease(catalog, "b") == ()
    clock.forward(11)
    (taken,) = await lease(catalog, "b", lease_s=30)
    assert (taken.id, taken.attempt, taken.checkpoint, taken.lease_owner) == (job.id, 2, {"page": 7}, "b")
    assert not await catalog.jobs.heartbeat(job.id, "a", lease_s=30)
    assert not await catalog.jobs.report(job.id, "a", stage="embed", counters={})
    assert not await catalog.jobs.checkpoint(job.id, "a", None)
    assert not await catalog.jobs.finish(job.id, "a")
    assert not await catalog.jobs.fail(job.id, "a", "INTERNAL", "late")
    assert not await catalog.jobs.retry_later(job.id, "a", delay_s=1, reason="x")


async def test_lease_when_the_last_attempt_expires_then_job_and_document_fail(
    catalog: Catalog, kb: KnowledgeBase, clock: Clock
) -> None:
    outcome = await put(catalog, kb)
    for _ in range(3):
        assert len(await lease(catalog, lease_s=10)) == 1
        await catalog.versions.start(outcome.version)
        clock.forward(11)
    assert [job.kind for job in await lease(catalog)] == [JobKind.RETIRE]
    job = await catalog.jobs.get(TENANT, outcome.job_id)
    assert (job.state, job.attempt) == (JobState.FAILED, 3)
    assert job.error is not None
    assert (await catalog.documents.get(TENANT, outcome.document_id)).state is DocumentState.FAILED


async def test_lease_when_clean_up_expires_again_and_again_then_it_is_never_given_up(
    catalog: Catalog, kb: KnowledgeBase, clock: Clock
) -> None:
    await catalog.knowledge_bases.delete(TENANT, kb.id)
    for attempt in range(1, 6):
        (job,) = await lease(catalog, lease_s=10)
        assert (job.kind, job.attempt) == (JobKind.PURGE, attempt)
        clock.forward(11)


async def test_fail_when_the_job_is_clean_up_then_it_waits_longer_each_time(
    catalog: Catalog, kb: KnowledgeBase, clock: Clock
) -> None:
    await catalog.knowledge_bases.delete(TENANT, kb.id)
    for pause_s in (10, 20, 40, 80):
        (job,) = await lease(catalog)
        assert await catalog.jobs.fail(job.id, "worker", "INDEX_UNAVAILABLE", "down")
        clock.forward(pause_s - 1)
        assert await lease(catalog) == ()
        clock.forward(1)


async def test_lease_when_many_wait_then_tenants_and_knowledge_bases_take_turns(catalog: Catalog, clock: Clock) -> None:
    big, small, foreign = await make_kb(catalog), await make_kb(catalog), await make_kb(catalog, OTHER)
    for number in range(6):
        clock.forward(1)
        await put(catalog, big, f"{number}", f"{number}")
    clock.forward(1)
    await put(catalog, small)
    clock.forward(1)
    await put(catalog, foreign)
    order = [job.knowledge_base_id for job in await lease(catalog, limit=8)]
    assert order[:4] == [big.id, foreign.id, small.id, big.id]


async def test_lease_when_one_knowledge_base_then_oldest_first(
    catalog: Catalog, kb: KnowledgeBase, clock: Clock
) -> None:
    expected = []
    for name in ("a", "b", "c"):
        expected.append((await put(catalog, kb, name, name)).job_id)
        clock.forward(1)
    assert [job.id for _ in range(3) for job in await lease(catalog)] == expected


async def test_lease_when_kinds_are_named_then_no_others(catalog: Catalog, kb: KnowledgeBase) -> None:
    await put(catalog, kb)
    job_id = await catalog.jobs.enqueue(TENANT, kb.id, JobKind.REWRITE_SPARSE)
    assert await catalog.jobs.enqueue(TENANT, kb.id, JobKind.REWRITE_SPARSE) == job_id
    assert [job.id for job in await lease(catalog, kinds=(JobKind.REWRITE_SPARSE,), limit=9)] == [job_id]
    assert await catalog.jobs.enqueue(TENANT, kb.id, JobKind.REWRITE_SPARSE) != job_id


async def test_retry_later_when_something_else_is_down_then_no_attempt_is_lost(
    catalog: Catalog, kb: KnowledgeBase, clock: Clock
) -> None:
    await put(catalog, kb)
    for _ in range(5):
        (job,) = await lease(catalog)
        assert job.attempt == 1
        assert await catalog.jobs.retry_later(job.id, "worker", delay_s=5, reason="EMBEDDER_UNAVAILABLE")
        assert await lease(catalog) == ()
        waiting = await catalog.jobs.get(TENANT, job.id)
        assert waiting.error is not None
        assert (waiting.state, waiting.error.reason) == (JobState.PENDING, "EMBEDDER_UNAVAILABLE")
        clock.forward(5)


async def test_fail_when_an_ingestion_fails_then_the_document_does_with_it(catalog: Catalog, kb: KnowledgeBase) -> None:
    outcome = await put(catalog, kb)
    (job,) = await lease(catalog)
    assert await catalog.jobs.fail(job.id, "worker", "NO_TEXT", "nothing in it")
    failed = await catalog.jobs.get(TENANT, job.id)
    assert failed.error is not None
    assert (failed.state, failed.error.reason, failed.finished) == (JobState.FAILED, "NO_TEXT", True)
    assert (await catalog.documents.get(TENANT, outcome.document_id)).state is DocumentState.FAILED
    assert [j.kind for j in await lease(catalog)] == [JobKind.RETIRE]


async def test_cancel_when_running_then_worker_hears_and_the_document_is_cancelled(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    outcome = await put(catalog, kb)
    (job,) = await lease(catalog)
    await catalog.versions.start(outcome.version)
    cancelled = await catalog.jobs.cancel(TENANT, job.id)
    assert cancelled.state is JobState.CANCELLED
    assert not await catalog.jobs.heartbeat(job.id, "worker", lease_s=30)
    assert (await catalog.documents.get(TENANT, outcome.document_id)).state is DocumentState.CANCELLED
    assert await catalog.jobs.cancel(TENANT, job.id) == cancelled


async def test_cancel_when_a_replacement_is_cancelled_then_the_old_one_is_done(
    catalog: Catalog, kb: KnowledgeBase
) -> None:
    live = await put_live(catalog, kb, "a", "one")
    newer = await put(catalog, kb, "a", "two")
    await catalog.jobs.cancel(TENANT, newer.job_id)
    document = await catalog.documents.get(TENANT, live.document_id)
    assert (document.state, document.live_version) == (DocumentState.DONE, live.version)


async def test_cancel_when_the_job_is_clean_up_then_refused(catalog: Catalog, kb: KnowledgeBase) -> None:
    outcome = await put_live(catalog, kb)
    await catalog.documents.delete(TENANT, outcome.document_id)
    (job,) = await lease(catalog)
    with pytest.raises(InvalidRequest):
        await catalog.jobs.cancel(TENANT, job.id)


async def test_changes_when_the_job_moves_then_each_change_is_seen_once(catalog: Catalog, kb: KnowledgeBase) -> None:
    outcome = await put(catalog, kb)
    first = await catalog.jobs.changes(TENANT, outcome.job_id, after_seq=0)
    assert first is not None
    assert await catalog.jobs.changes(TENANT, outcome.job_id, after_seq=first.change_seq) is None
    await lease(catalog)
    counters = {"parse": Progress(done=3, total=9), "embed": Progress(done=0)}
    assert await catalog.jobs.report(outcome.job_id, "worker", stage="parse", counters=counters)
    second = await catalog.jobs.changes(TENANT, outcome.job_id, after_seq=first.change_seq)
    assert second is not None
    assert (second.stage, second.counters, second.state) == ("parse", counters, JobState.RUNNING)
    assert await catalog.jobs.finish(outcome.job_id, "worker", warnings=(ParseWarning(code="C", message="m"),))
    third = await catalog.jobs.changes(TENANT, outcome.job_id, after_seq=second.change_seq)
    assert third is not None
    assert (third.state, third.warnings[0].code) == (JobState.DONE, "C")


async def test_checkpoint_when_too_large_then_refused(catalog: Catalog, kb: KnowledgeBase) -> None:
    outcome = await put(catalog, kb)
    await lease(catalog)
    with pytest.raises(ValueError, match="at most"):
        await catalog.jobs.checkpoint(outcome.job_id, "worker", "x" * 300_000)


async def test_list_when_filtered_and_paged_then_each_job_once(catalog: Catalog, kb: KnowledgeBase) -> None:
    expected = [(await put(catalog, kb, f"{n}", f"{n}")).job_id for n in range(5)]
    await make_kb(catalog, OTHER)
    first = await catalog.jobs.list(TENANT, kb_id=kb.id, page_size=3)
    rest = await catalog.jobs.list(TENANT, kb_id=kb.id, page_token=first.next_page_token)
    assert sorted(job.id for job in (*first.entries, *rest.entries)) == sorted(expected)
    assert (await catalog.jobs.list(TENANT, states=[JobState.DONE])).entries == ()
    assert (await catalog.jobs.list(TENANT, kinds=[JobKind.PURGE])).entries == ()
    assert (await catalog.jobs.list(OTHER)).entries == ()


async def test_isolation_when_another_tenant_names_a_job_then_not_found(catalog: Catalog, kb: KnowledgeBase) -> None:
    outcome = await put(catalog, kb)
    for job_id in (outcome.job_id, JobId("job_" + "0" * 26)):
        for call in (
            catalog.jobs.get(OTHER, job_id),
            catalog.jobs.cancel(OTHER, job_id),
            catalog.jobs.changes(OTHER, job_id, after_seq=0),
        ):
            with pytest.raises(NotFound):
                await call
    assert (await catalog.jobs.get(TENANT, outcome.job_id)).state is JobState.PENDING


async def test_prune_when_jobs_finished_long_ago_then_only_they_go(
    catalog: Catalog, kb: KnowledgeBase, clock: Clock
) -> None:
    old = await put_live(catalog, kb, "a", "one")
    clock.forward(7 * 86_400)
    recent = await put_live(catalog, kb, "b", "two")
    open_ = await put(catalog, kb, "c", "three", request_id="r")
    clock.forward(1)
    assert await catalog.jobs.prune() == 1
    with pytest.raises(NotFound):
        await catalog.jobs.get(TENANT, old.job_id)
    assert {job.id for job in (await catalog.jobs.list(TENANT)).entries} == {recent.job_id, open_.job_id}
    clock.forward(86_400)
    assert await catalog.jobs.prune() == 1, "the request id"
