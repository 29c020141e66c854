"""The worker loop: leases jobs, runs them side by side, keeps their leases alive, and ends each exactly once."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from services.catalog.catalog import Catalog
from services.catalog.job_types import Job, JobKind
from services.catalog.job_types import Progress as Counter
from services.common import logs
from services.common.errors import Reason, ServiceError
from services.common.metrics import Metrics
from services.common.turns import take_turn
from services.domain.blocks import ParseWarning
from services.ingestor.checkpoint import Checkpoint
from services.ingestor.pipeline import Progress

_log = logs.get(__name__)

#: Something else is down or busy: the job waits, and loses no attempt.
_OUTAGES = {
    Reason.INDEX_UNAVAILABLE,
    Reason.EMBEDDER_UNAVAILABLE,
    Reason.CATALOG_UNAVAILABLE,
    Reason.BLOB_STORE_UNAVAILABLE,
    Reason.OVERLOADED,
    Reason.DEADLINE_EXCEEDED,
    Reason.DEADLINE_UNREACHABLE,
    Reason.SHUTTING_DOWN,
    Reason.DEVICE_LOST,
}
_OUTAGE_DELAY_S = 5.0
_DEFECT_DELAY_S = 10.0
_REPORT_INTERVAL_S = 0.3

#: Does the work of one job; returns the warnings to keep with it.
Handler = Callable[[Job, Progress], Awaitable[tuple[ParseWarning, ...]]]


class LeaseLost(Exception):
    """The job was cancelled, or another worker has it: stop, and write no more."""


class JobRunner:
    """Runs at most `concurrent_jobs` jobs of the kinds in `handlers`.

    `start` and `aclose` bound its life; `wake` saves the wait for the next poll when a job was just made here. A job
    that is cut off by `aclose` keeps its checkpoint, and is taken up again once its lease was given back or ran out.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        handlers: Mapping[JobKind, Handler],
        metrics: Metrics,
        concurrent_jobs: int,
        lease_s: float,
        poll_interval_s: float,
        report_interval_s: float = _REPORT_INTERVAL_S,
    ) -> None:
        self._catalog = catalog
        self._handlers = handlers
        self._metrics = metrics
        self._limit = concurrent_jobs
        self._lease_s = lease_s
        self._poll_interval_s = poll_interval_s
        self._report_interval_s = report_interval_s
        self._owner = f"worker-{secrets.token_hex(8)}"
        self._wake = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._run())

    def wake(self) -> None:
        self._wake.set()

    async def aclose(self) -> None:
        tasks = [task for task in (self._loop, *self._running) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._lease()
            except ServiceError as error:
                _log.warning("lease_failed", reason=error.error_reason.name, message=error.message)
            except Exception as error:  # a defect must not end the loop: no job would ever run again
                _log.error("lease_defect", exc_info=error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._poll_interval_s)

    async def _lease(self) -> None:
        free = self._limit - len(self._running)
        if free <= 0:
            return
        kinds = tuple(self._handlers)
        for job in await self._catalog.jobs.lease(self._owner, kinds=kinds, lease_s=self._lease_s, limit=free):
            task = asyncio.create_task(self._work(job))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("job_not_ended", exc_info=error)

    async def _work(self, job: Job) -> None:
        take_turn(f"{job.tenant_id}/{job.id}")  # so that a large document does not hold up the small ones behind it
        self._metrics.jobs_running.labels(job.kind.value).inc()
        try:
            outcome = await self._attempt(job)
        finally:
            self._metrics.jobs_running.labels(job.kind.value).dec()
        self._metrics.jobs.labels(job.kind.value, outcome).inc()

    async def _attempt(self, job: Job) -> str:
        """Run the job under its lease, and record how it ended; the outcome as a metric label."""
        counters: dict[str, Counter] = dict(job.counters)
        work = asyncio.create_task(self._run_handler(job, counters))
        beat = asyncio.create_task(self._keep_lease(job))
        try:
            await asyncio.wait({work, beat}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():  # the lease went first
                return "lost"
            warnings = work.result()
        except LeaseLost:
            return "lost"
        except asyncio.CancelledError:
            await _end(work, beat)  # before another worker begins where this one stopped
            await self._give_back(job)
            raise
        except ServiceError as error:
            return await self._failed(job, error)
        except Exception as error:  # a defect must not end the loop, nor the job without a word
            _log.error("job_defect", job=job.id, kind=job.kind.value, exc_info=error)
            return await self._defect(job)
        finally:
            await _end(work, beat)
        await self._catalog.jobs.finish(job.id, self._owner, warnings=warnings, counters=counters)
        return "done"

    async def _run_handler(self, job: Job, counters: dict[str, Counter]) -> tuple[ParseWarning, ...]:
        """Do the work, reporting on the way now and then: each report is a write that is synced to disk."""
        reported = time.monotonic()

        async def report(stage: str, done: int, total: int) -> None:
            nonlocal reported
            counters[stage] = Counter(done=done, total=total)
            if time.monotonic() - reported < self._report_interval_s:
                return
            reported = time.monotonic()
            if not await self._catalog.jobs.report(job.id, self._owner, stage=stage, counters=counters):
                raise LeaseLost

        async def save(checkpoint: Checkpoint) -> None:
            if not await self._catalog.jobs.checkpoint(job.id, self._owner, checkpoint.to_json()):
                raise LeaseLost

        return await self._handlers[job.kind](job, Progress(report, save))

    async def _keep_lease(self, job: Job) -> None:
        """Returns when the lease is lost. A catalogue that does not answer is asked again."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                if not await self._catalog.jobs.heartbeat(job.id, self._owner, lease_s=self._lease_s):
                    return
            except ServiceError as error:
                _log.warning("heartbeat_failed", job=job.id, reason=error.error_reason.name)

    async def _failed(self, job: Job, error: ServiceError) -> str:
        reason, message = error.error_reason, error.message
        if reason in _OUTAGES:
            delay_s = error.retry_after_s or _OUTAGE_DELAY_S
            await self._catalog.jobs.retry_later(
                job.id, self._owner, delay_s=delay_s, reason=reason.name, message=message
            )
            return "postponed"
        if reason is Reason.INTERNAL:
            _log.error("job_defect", job=job.id, kind=job.kind.value, message=message)
            return await self._defect(job)
        await self._catalog.jobs.fail(job.id, self._owner, reason.name, message)
        _log.info("job_failed", job=job.id, kind=job.kind.value, reason=reason.name, message=message)
        return "failed"

    async def _defect(self, job: Job) -> str:
        message = f"internal error; report job {job.id}"
        if job.attempt >= job.max_attempts:
            await self._catalog.jobs.fail(job.id, self._owner, Reason.INTERNAL.name, message)
            return "failed"
        await self._catalog.jobs.try_again(
            job.id, self._owner, delay_s=_DEFECT_DELAY_S, reason=Reason.INTERNAL.name, message=message
        )
        return "defect"

    async def _give_back(self, job: Job) -> None:
        """The server stops: let another worker have the job at once. If that fails, the lease runs out by itself."""
        with contextlib.suppress(ServiceError, asyncio.CancelledError):
            await asyncio.shield(
                self._catalog.jobs.retry_later(
                    job.id, self._owner, delay_s=0, reason=Reason.SHUTTING_DOWN.name, message="the server stopped"
                )
            )


async def _end(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
