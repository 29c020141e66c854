"""Jobs inside somebody else's transaction: enqueue work together with what makes it necessary, cancel it likewise."""

from sqlalchemy import ColumnElement, Connection, func, insert, select, update

from services.catalog.job_types import OPEN_STATES, JobKind, JobState
from services.catalog.tables import jobs
from services.domain.ids import DocumentId, DocVersionId, JobId, KnowledgeBaseId, TenantId, new_id


def enqueue(
    connection: Connection,
    kind: JobKind,
    *,
    tenant: TenantId,
    kb_id: KnowledgeBaseId,
    now_us: int,
    max_attempts: int,
    document_id: DocumentId | None = None,
    version: DocVersionId | None = None,
    not_before_us: int = 0,
) -> JobId:
    job_id = JobId(new_id("job"))
    connection.execute(
        insert(jobs).values(
            id=job_id,
            tenant_id=tenant,
            kb_id=kb_id,
            document_id=document_id,
            version=version,
            kind=kind,
            state=JobState.PENDING,
            stage="",
            counters={},
            checkpoint=None,
            attempt=0,
            max_attempts=max_attempts,
            not_before_us=max(now_us, not_before_us),
            warnings=[],
            created_us=now_us,
            updated_us=now_us,
            change_seq=1,
        )
    )
    return job_id


def cancel_open(connection: Connection, *conditions: ColumnElement[bool], now_us: int) -> int:
    """Cancel the open jobs that meet `conditions`; returns when the last of their leases ends (us, 0 for none).

    Until that moment a worker that has not heard yet may go on writing, so clean-up waits for it.
    """
    where = (jobs.c.state.in_(OPEN_STATES), *conditions)
    last_lease_us = connection.execute(select(func.max(jobs.c.lease_expires_us)).where(*where)).scalar_one()
    connection.execute(update(jobs).where(*where).values(**closed(JobState.CANCELLED, now_us)))
    return last_lease_us or 0


def closed(state: JobState, now_us: int) -> dict[str, object]:
    """The columns of a job that ends in `state`. The checkpoint has served."""
    return {
        "state": state,
        "lease_owner": None,
        "lease_expires_us": None,
        "checkpoint": None,
        "updated_us": now_us,
        "finished_us": now_us,
        "change_seq": jobs.c.change_seq + 1,
    }
