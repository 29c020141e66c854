"""The worker loop: every job ends once, outages cost nothing, defects cost an attempt, a lost lease ends the work."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from services.catalog.job_types import Job, JobKind, JobState
from services.catalog.types import DocumentState, UploadOutcome
from services.common.errors import DocumentError, Reason, ServiceError, Unavailable
from services.common.metrics import Metrics
from services.domain.blocks import ParseWarning
from services.domain.ids import JobId
from services.ingestor.checkpoint import Checkpoint
from services.ingestor.pipeline import Progress
from services.ingestor.runner import JobRunner
from tests.helpers.ingestion import TENANT, Workshop
from tests.helpers.product import until as came_true

_WITHIN_S = 20.0
Handle = Callable[[Job, Progress], Awaitable[tuple[ParseWarning, ...]]]


async def succeed(job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
    return ()


@dataclass
class Script:
    """A handler that does something else at each attempt, the last of them for ever after."""

    steps: list[Handle]
    calls: list[Job] = field(default_factory=list[Job])

    async def __call__(self, job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
        self.calls.append(job)
        return await self.steps[min(len(self.calls), len(self.steps)) - 1](job, progress)


def raising(error: Exception) -> Handle:
    async def fail(job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
        raise error

    return fail


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@asynccontextmanager
async def running(shop: Workshop, handler: Handle, metrics: Metrics, **options: float) -> AsyncIterator[JobRunner]:
    runner = JobRunner(
        catalog=shop.catalog,
        handlers={JobKind.INGEST: handler},
        metrics=metrics,
        concurrent_jobs=int(options.get("concurrent_jobs", 2)),
        lease_s=options.get("lease_s", 30.0),
        poll_interval_s=0.02,
        report_interval_s=0.0,
    )
    await runner.start()
    try:
        yield runner
    finally:
        await runner.aclose()


async def upload(shop: Workshop, name: str = "a.txt") -> UploadOutcome:
    return await shop.put(await shop.kb(), name, f"The text of {name}.")


async def job_of(shop: Workshop, outcome: UploadOutcome) -> Job:
    assert outcome.job_id is not None
    return await shop.catalog.jobs.get(TENANT, JobId(outcome.job_id))


async def until(shop: Workshop, outcome: UploadOutcome, holds: Callable[[Job], bool]) -> Job:
    await came_true(lambda: _holds(shop, outcome, holds))
    return await job_of(shop, outcome)


async def _holds(shop: Workshop, outcome: UploadOutcome, holds: Callable[[Job], bool]) -> bool:
    return holds(await job_of(shop, outcome))


def outcomes(metrics: Metrics, outcome: str) -> float:
    return metrics.jobs.labels("INGEST", outcome)._value.get()


async def test_run_when_the_handler_ends_well_then_the_job_is_done_with_its_warnings(
    shop: Workshop, metrics: Metrics
) -> None:
    outcome = await upload(shop)
    warning = ParseWarning(code="GUESSED_ENCODING", message="cp1252", page=None)

    async def warn(job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
        await progress.report("parse", 1, 2)
        return (warning,)

    async with running(shop, warn, metrics):
        job = await until(shop, outcome, lambda job: job.finished)
    assert (job.state, job.warnings, job.attempt) == (JobState.DONE, (warning,), 1)
    assert (job.counters["parse"].done, job.counters["parse"].total) == (1, 2)
    assert outcomes(metrics, "done") == 1


async def test_run_when_the_document_is_at_fault_then_the_job_fails_with_the_reason_at_once(
    shop: Workshop, metrics: Metrics
) -> None:
    outcome = await upload(shop)
    handler = Script([raising(DocumentError("no text", reason=Reason.NO_TEXT))])
    async with running(shop, handler, metrics):
        job = await until(shop, outcome, lambda job: job.finished)
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert (job.error.reason, job.error.message) == ("NO_TEXT", "no text")
    document = await shop.catalog.documents.get(TENANT, outcome.document_id)
    assert document.state is DocumentState.FAILED
    assert len(handler.calls) == 1


@pytest.mark.parametrize("reason", [Reason.INDEX_UNAVAILABLE, Reason.EMBEDDER_UNAVAILABLE, Reason.OVERLOADED])
async def test_run_when_something_is_down_then_the_job_waits_and_loses_no_attempt(
    shop: Workshop, metrics: Metrics, reason: Reason
) -> None:
    outcome = await upload(shop)
    down = raising(Unavailable("down", reason=reason, retry_after_s=0.01))
    handler = Script([down] * 5 + [succeed])
    async with running(shop, handler, metrics):
        job = await until(shop, outcome, lambda job: job.finished)
    assert (job.state, job.attempt, job.error) == (JobState.DONE, 1, None)
    assert len(handler.calls) == 6
    assert outcomes(metrics, "postponed") == 5


@pytest.mark.parametrize("error", [ValueError("a defect"), ServiceError("the engine broke", reason=Reason.INTERNAL)])
async def test_run_when_there_is_a_defect_then_it_is_tried_again_and_then_given_up(
    shop: Workshop, metrics: Metrics, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ingestor.runner._DEFECT_DELAY_S", 0.01)
    outcome = await upload(shop)
    handler = Script([raising(error)])
    async with running(shop, handler, metrics):
        job = await until(shop, outcome, lambda job: job.finished)
    assert (job.state, len(handler.calls)) == (JobState.FAILED, job.max_attempts)
    assert job.error is not None
    assert job.error.reason == "INTERNAL"
    assert job.id in job.error.message
    assert "defect" not in job.error.message
    assert outcomes(metrics, "defect") == job.max_attempts - 1


async def test_run_when_the_job_is_cancelled_then_the_work_stops_at_the_next_report(
    shop: Workshop, metrics: Metrics
) -> None:
    outcome = await upload(shop)
    reached, go_on, after = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
        reached.set()
        await go_on.wait()
        await progress.report("write", 1, 2)
        after.set()
        return ()

    async with running(shop, work, metrics):
        await asyncio.wait_for(reached.wait(), _WITHIN_S)
        await shop.catalog.jobs.cancel(TENANT, (await job_of(shop, outcome)).id)
        go_on.set()
        await came_true(lambda: outcomes(metrics, "lost") == 1)
    assert not after.is_set()
    assert (await job_of(shop, outcome)).state is JobState.CANCELLED


async def test_run_when_the_lease_is_lost_then_work_that_never_reports_is_stopped_too(
    shop: Workshop, metrics: Metrics
) -> None:
    outcome = await upload(shop)
    reached, stopped = asyncio.Event(), asyncio.Event()

    async def hang(job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ()

    async with running(shop, hang, metrics, lease_s=0.3):
        await asyncio.wait_for(reached.wait(), _WITHIN_S)
        await shop.catalog.jobs.cancel(TENANT, (await job_of(shop, outcome)).id)
        await asyncio.wait_for(stopped.wait(), _WITHIN_S)


async def test_run_when_work_takes_longer_than_the_lease_then_the_lease_is_kept(
    shop: Workshop, metrics: Metrics
) -> None:
    outcome = await upload(shop)
    release = asyncio.Event()

    async def wait(job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
        await release.wait()
        return ()

    handler = Script([wait])
    async with running(shop, handler, metrics, lease_s=0.6):
        first = await until(shop, outcome, lambda job: job.lease_expires is not None)
        assert first.lease_expires is not None
        until_then = first.lease_expires
        await until(shop, outcome, lambda job: job.lease_expires is not None and job.lease_expires > until_then)
        release.set()
        job = await until(shop, outcome, lambda job: job.finished)
    assert (job.state, len(handler.calls)) == (JobState.DONE, 1)


async def test_aclose_when_a_job_is_in_work_then_it_is_given_back_with_its_checkpoint_and_attempts(
    shop: Workshop, metrics: Metrics
) -> None:
    outcome = await upload(shop)
    reached, ended_first = asyncio.Event(), asyncio.Event()

    async def hang(job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
        await progress.save(Checkpoint(parts=3, next_page=4))
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            if (await job_of(shop, outcome)).state is JobState.RUNNING:
                ended_first.set()
        return ()

    async with running(shop, hang, metrics):
        await asyncio.wait_for(reached.wait(), _WITHIN_S)
    job = await job_of(shop, outcome)
    assert (job.state, job.attempt, job.lease_owner) == (JobState.PENDING, 0, None)
    assert Checkpoint.from_json(job.checkpoint).parts == 3
    assert ended_first.is_set(), "another worker could have begun while this one still worked"
    taken = await shop.lease(owner="another")
    assert (taken.id, taken.attempt) == (job.id, 1)


async def test_run_when_leasing_breaks_then_the_loop_goes_on(
    shop: Workshop, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = await upload(shop)
    lease, broken = shop.catalog.jobs.lease, [RuntimeError("a defect"), Unavailable("busy")]

    async def once_broken(*arguments: object, **options: object) -> tuple[Job, ...]:
        if broken:
            raise broken.pop()
        return await lease(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(shop.catalog.jobs, "lease", once_broken)
    async with running(shop, succeed, metrics):
        assert (await until(shop, outcome, lambda job: job.finished)).state is JobState.DONE


async def test_run_when_many_jobs_wait_then_no_more_than_allowed_run_at_once(shop: Workshop, metrics: Metrics) -> None:
    kb = await shop.kb()
    uploaded = [await shop.put(kb, f"{n}.txt", f"Text {n}.") for n in range(7)]
    now, most = 0, 0

    async def work(job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await progress.report("parse", 1, 1)
        now -= 1
        return ()

    async with running(shop, work, metrics, concurrent_jobs=3):
        for outcome in uploaded:
            await until(shop, outcome, lambda job: job.finished)
    assert 1 < most <= 3
