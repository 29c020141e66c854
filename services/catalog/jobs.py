"""Jobs: workers lease, report and end them; callers look, watch and cancel."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, or_, select, update

from services.catalog.database import Database
from services.catalog.job_queue import cancel_open, closed, enqueue
from services.catalog.job_types import ENDLESS_KINDS, OPEN_STATES, Job, JobKind, JobState, Json, Progress
from services.catalog.leasing import requeue_expired, take
from services.catalog.lifecycle import cancel_version, fail_version, lock_knowledge_base
from services.catalog.paging import decode_token, list_fingerprint, page_size_of, to_page
from services.catalog.requests import prune_requests
from services.catalog.rows import encode_warnings, to_job
from services.catalog.settings import CatalogSettings
from services.catalog.tables import jobs, knowledge_bases
from services.catalog.types import Failure, Page
from services.catalog.worker_writes import bounded_checkpoint, bounded_counters, held_by
from services.common.errors import FieldViolation, InvalidRequest, NotFound
from services.domain.blocks import ParseWarning
from services.domain.ids import DocumentId, DocVersionId, JobId, KnowledgeBaseId, TenantId

_PRUNE_SLICE = 1000
_MESSAGE_MAX_CHARS = 2000
_LOST = Failure(reason="INTERNAL", message="the worker stopped answering, on the last attempt there was")
_BACKOFF_S = 10.0
_BACKOFF_MAX_S = 3600.0


class Jobs:
    """The queue. A lease belongs to one `owner` (unique per worker) and is kept alive by heartbeats."""

    def __init__(self, database: Database, settings: CatalogSettings) -> None:
        self._database = database
        self._settings = settings

    async def enqueue(
        self,
        tenant: TenantId,
        kb_id: KnowledgeBaseId,
        kind: JobKind,
        *,
        document_id: DocumentId | None = None,
        version: DocVersionId | None = None,
        delay_s: float = 0.0,
    ) -> JobId:
        """Queue work of `kind`; an equal one that nobody has begun serves both. Errors: KNOWLEDGE_BASE_NOT_FOUND."""
        now_us = self._database.now_us()

        def work(connection: Connection) -> JobId:
            lock_knowledge_base(connection, tenant, kb_id)
            waiting = connection.execute(
                select(jobs.c.id)
                .where(
                    jobs.c.kb_id == kb_id,
                    jobs.c.kind == kind,
                    jobs.c.state == JobState.PENDING,
                    jobs.c.document_id.is_not_distinct_from(document_id),
                    jobs.c.version.is_not_distinct_from(version),
                )
                .limit(1)
                .with_for_update(skip_locked=True)
            ).scalar_one_or_none()
            return (
                JobId(waiting)
                if waiting is not None
                else enqueue(
                    connection,
                    kind,
                    tenant=tenant,
                    kb_id=kb_id,
                    document_id=document_id,
                    version=version,
                    now_us=now_us,
                    not_before_us=now_us + int(delay_s * 1_000_000),
                    max_attempts=self._settings.max_attempts,
                )
            )

        return await self._database.write(work)

    async def lease(self, owner: str, *, kinds: Sequence[JobKind], lease_s: float, limit: int = 1) -> tuple[Job, ...]:
        """Take up to `limit` due jobs for `lease_s`, those of silent workers included.

        Tenants and knowledge bases with fewer running jobs come first, then the oldest job. A job whose lease ran out
        on its last attempt is FAILED, and its document with it; clean-up (RETIRE, PURGE) is never given up.
        """
        now_us = self._database.now_us()
        lease_us = int(lease_s * 1_000_000)

        def work(connection: Connection) -> tuple[list[JobId], list[Job]]:
            exhausted = requeue_expired(connection, now_us, ENDLESS_KINDS)
            if exhausted:
                return exhausted, []
            return [], take(connection, owner=owner, kinds=kinds, lease_us=lease_us, limit=limit, now_us=now_us)

        while True:
            exhausted, taken = await self._database.write(work)
            if not exhausted:
                return tuple(taken)
            for job_id in exhausted:
                # Of its own: it locks a knowledge base, which comes before jobs in the order of locks.
                await self._database.write(lambda c, j=job_id: self._give_up(c, j, now_us))

    def _give_up(self, connection: Connection, job_id: JobId, now_us: int) -> None:
        job = connection.execute(select(jobs).where(jobs.c.id == job_id)).one_or_none()
        if job is None:
            return
        if job.kind == JobKind.INGEST:
            fail_version(connection, DocVersionId(job.version), _LOST, settings=self._settings, now_us=now_us)
        connection.execute(
            update(jobs)
            .where(jobs.c.id == job_id, jobs.c.state == JobState.RUNNING, jobs.c.lease_expires_us <= now_us)
            .values(**closed(JobState.FAILED, now_us), error_reason=_LOST.reason, error_message=_LOST.message)
        )

    async def heartbeat(self, job_id: JobId, owner: str, *, lease_s: float) -> bool:
        """Keep the lease for `lease_s` from now. False when the job was cancelled or taken over: write no more."""
        now_us = self._database.now_us()
        return await self._update(job_id, owner, {"lease_expires_us": now_us + int(lease_s * 1_000_000)})

    async def report(self, job_id: JobId, owner: str, *, stage: str, counters: dict[str, Progress]) -> bool:
        """Show how far the job is. False as for `heartbeat`."""
        shown = {"stage": stage[:64], "counters": bounded_counters(counters)}
        return await self._update(job_id, owner, {**shown, **self._changed()})

    async def checkpoint(self, job_id: JobId, owner: str, state: Json) -> bool:
        """Keep what the next attempt may start from (bounded by `checkpoint_max_bytes`). False as for `heartbeat`.

        Attempts are counted from here: a job that gets on is not the cause of its workers' deaths.
        """
        bounded_checkpoint(state, self._settings.checkpoint_max_bytes)
        return await self._update(job_id, owner, {"checkpoint": state, "attempt": 1})

    async def finish(
        self,
        job_id: JobId,
        owner: str,
        *,
        warnings: tuple[ParseWarning, ...] = (),
        counters: dict[str, Progress] | None = None,
    ) -> bool:
        """The work is done, and got as far as `counters` say (None: as reported). False as for `heartbeat`."""
        values: dict[str, Any] = dict(closed(JobState.DONE, self._database.now_us()))
        values |= {"error_reason": None, "error_message": None, "warnings": encode_warnings(warnings)}
        if counters is not None:
            values["counters"] = bounded_counters(counters)
        return await self._update(job_id, owner, values)

    async def fail(self, job_id: JobId, owner: str, reason: str, message: str) -> bool:
        """Give the job up, and its version with it in the same transaction. False as for `heartbeat`.

        Clean-up is tried again instead, after a pause that doubles up to an hour.
        """
        now_us = self._database.now_us()
        error = Failure(reason=reason[:64], message=message[:_MESSAGE_MAX_CHARS])

        def work(connection: Connection) -> bool:
            job = connection.execute(select(jobs).where(*held_by(job_id, owner))).one_or_none()
            if job is None:
                return False
            if job.kind == JobKind.INGEST:
                fail_version(connection, DocVersionId(job.version), error, settings=self._settings, now_us=now_us)
            if job.kind in ENDLESS_KINDS:
                pause_s = min(_BACKOFF_MAX_S, _BACKOFF_S * 2.0 ** min(job.attempt - 1, 16))
                values = self._waiting(pause_s, error)
            else:
                failure = {"error_reason": error.reason, "error_message": error.message}
                values = {**closed(JobState.FAILED, now_us), **failure}
            done = connection.execute(update(jobs).where(*held_by(job_id, owner)).values(**values))
            return done.rowcount == 1

        return await self._database.write(work)

    async def retry_later(self, job_id: JobId, owner: str, *, delay_s: float, reason: str, message: str = "") -> bool:
        """Back into the line without losing an attempt: something else is down. False as for `heartbeat`."""
        error = Failure(reason=reason[:64], message=message[:_MESSAGE_MAX_CHARS])
        values = {**self._waiting(delay_s, error), "attempt": jobs.c.attempt - 1}
        return await self._update(job_id, owner, values)

    async def try_again(self, job_id: JobId, owner: str, *, delay_s: float, reason: str, message: str = "") -> bool:
        """Back into the line with one attempt less: the job itself went wrong. False as for `heartbeat`."""
        error = Failure(reason=reason[:64], message=message[:_MESSAGE_MAX_CHARS])
        return await self._update(job_id, owner, self._waiting(delay_s, error))

    def _waiting(self, delay_s: float, error: Failure) -> dict[str, Any]:
        now_us = self._database.now_us()
        return {
            "state": JobState.PENDING,
            "lease_owner": None,
            "lease_expires_us": None,
            "not_before_us": now_us + int(delay_s * 1_000_000),
            "error_reason": error.reason,
            "error_message": error.message,
            **self._changed(),
        }

    def _changed(self) -> dict[str, Any]:
        return {"updated_us": self._database.now_us(), "change_seq": jobs.c.change_seq + 1}

    async def _update(self, job_id: JobId, owner: str, values: dict[str, Any]) -> bool:
        statement = update(jobs).where(*held_by(job_id, owner)).values(**values)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount == 1)

    async def get(self, tenant: TenantId, job_id: JobId) -> Job:
        """Errors: JOB_NOT_FOUND."""
        return await self._database.read(lambda connection: to_job(_visible(connection, tenant, job_id)))

    async def changes(self, tenant: TenantId, job_id: JobId, *, after_seq: int) -> Job | None:
        """The job if it changed since `after_seq` (0: as it is now), else None. One look-up: made for polling."""

        def work(connection: Connection) -> Job | None:
            row = _visible(connection, tenant, job_id)
            return to_job(row) if row["change_seq"] > after_seq else None

        return await self._database.read(work)

    async def list(
        self,
        tenant: TenantId,
        *,
        kb_id: KnowledgeBaseId | None = None,
        states: Sequence[JobState] = (),
        kinds: Sequence[JobKind] = (),
        page_size: int = 0,
        page_token: str = "",
    ) -> Page[Job]:
        """Newest first. Errors: INVALID_PAGE_TOKEN, KNOWLEDGE_BASE_NOT_FOUND."""
        size = page_size_of(page_size)
        fingerprint = list_fingerprint("jobs", tenant, kb_id, sorted(states), sorted(kinds))
        query = _VISIBLE.where(jobs.c.tenant_id == tenant)
        if before := decode_token(page_token, fingerprint):
            query = query.where(jobs.c.id < before)
        if kb_id is not None:
            query = query.where(jobs.c.kb_id == kb_id)
        if states:
            query = query.where(jobs.c.state.in_(states))
        if kinds:
            query = query.where(jobs.c.kind.in_(kinds))
        query = query.order_by(jobs.c.id.desc()).limit(size + 1)

        def work(connection: Connection) -> Page[Job]:
            if kb_id is not None:
                known = select(knowledge_bases.c.id).where(
                    knowledge_bases.c.id == kb_id,
                    knowledge_bases.c.tenant_id == tenant,
                    knowledge_bases.c.deleted_us.is_(None),
                )
                if connection.execute(known).one_or_none() is None:
                    raise NotFound.knowledge_base(kb_id)
            found = [to_job(row) for row in connection.execute(query).mappings()]
            return to_page(found, size, fingerprint, [job.id for job in found])

        return await self._database.read(work)

    async def cancel(self, tenant: TenantId, job_id: JobId) -> Job:
        """Cancel an open job, and the version it was making; a finished one stays as it is. Returns the job.

        Errors: JOB_NOT_FOUND; INVALID_REQUEST for clean-up, which has to happen.
        """
        now_us = self._database.now_us()

        def work(connection: Connection) -> Job:
            job = to_job(_visible(connection, tenant, job_id))
            if job.kind in ENDLESS_KINDS and not job.finished:
                description = f"is a {job.kind} job: it removes what was deleted and cannot be cancelled"
                raise InvalidRequest.of(FieldViolation(field="job_id", description=description))
            if job.kind is JobKind.INGEST and job.version is not None:
                cancel_version(connection, job.version, settings=self._settings, now_us=now_us)
            cancel_open(connection, jobs.c.id == job_id, now_us=now_us)
            return to_job(_visible(connection, tenant, job_id))

        return await self._database.write(work)

    async def prune(self) -> int:
        """Forget jobs that finished long ago, and old request ids; call it now and then. Returns how many."""
        now_us = self._database.now_us()
        jobs_before_us = now_us - int(self._settings.job_retention_s * 1_000_000)
        requests_before_us = now_us - int(self._settings.request_id_ttl_s * 1_000_000)

        def work(connection: Connection) -> int:
            old = (
                select(jobs.c.id)
                .where(jobs.c.finished_us <= jobs_before_us, jobs.c.state.not_in(OPEN_STATES))
                .limit(_PRUNE_SLICE)
            )
            removed = connection.execute(delete(jobs).where(jobs.c.id.in_(old))).rowcount
            return removed + prune_requests(connection, before_us=requests_before_us, limit=_PRUNE_SLICE)

        total = 0
        while removed := await self._database.write(work):
            total += removed
        return total


#: Jobs of a deleted knowledge base are gone for callers, except the one that deletes it.
_VISIBLE = (
    select(jobs)
    .outerjoin(knowledge_bases, knowledge_bases.c.id == jobs.c.kb_id)
    .where(
        or_(
            jobs.c.kind == JobKind.PURGE,
            knowledge_bases.c.id.is_not(None) & knowledge_bases.c.deleted_us.is_(None),
        )
    )
)


def _visible(connection: Connection, tenant: TenantId, job_id: JobId) -> RowMapping:
    row = connection.execute(_VISIBLE.where(jobs.c.id == job_id, jobs.c.tenant_id == tenant)).mappings().one_or_none()
    if row is None:
        raise NotFound.job(job_id)
    return row
