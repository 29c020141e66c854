"""Which job is next: fair between tenants and knowledge bases, oldest first within one, never the same job twice."""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, Select, and_, func, or_, select, update

from services.catalog.job_types import OPEN_STATES, Job, JobKind, JobState
from services.catalog.rows import to_job
from services.catalog.tables import jobs, knowledge_bases
from services.domain.ids import JobId

_EXPIRED_AT_ONCE = 200


@dataclass(slots=True, order=True)
class _Line:
    """The waiting jobs of one kind in one knowledge base; the line with the fewest running jobs is served first."""

    running_in_tenant: int
    running_here: int
    oldest_us: int
    kb_id: str
    kind: str
    tenant: str = field(compare=False)


def requeue_expired(connection: Connection, now_us: int, endless: Sequence[JobKind]) -> list[JobId]:
    """Put jobs whose worker fell silent back into their line; returns those that have no attempt left."""
    expired = connection.execute(
        select(jobs.c.id, jobs.c.kind, jobs.c.attempt, jobs.c.max_attempts)
        .where(jobs.c.state == JobState.RUNNING, jobs.c.lease_expires_us <= now_us)
        .order_by(jobs.c.lease_expires_us)
        .limit(_EXPIRED_AT_ONCE)
        .with_for_update(skip_locked=True)
    ).all()
    exhausted = [row for row in expired if row.attempt >= row.max_attempts and row.kind not in endless]
    given_up = {row.id for row in exhausted}
    waiting = [row.id for row in expired if row.id not in given_up]
    if waiting:
        connection.execute(
            update(jobs)
            .where(jobs.c.id.in_(waiting))
            .values(
                state=JobState.PENDING,
                lease_owner=None,
                lease_expires_us=None,
                updated_us=now_us,
                change_seq=jobs.c.change_seq + 1,
            )
        )
    return [JobId(row.id) for row in exhausted]


def take(
    connection: Connection, *, owner: str, kinds: Sequence[JobKind], lease_us: int, limit: int, now_us: int
) -> list[Job]:
    """Lease up to `limit` due jobs to `owner`."""
    taken: list[Job] = []
    lines = _lines(connection, kinds, now_us)
    while lines and len(taken) < limit:
        line = heapq.heappop(lines)
        chosen = connection.execute(
            _due(line.kind, now_us).where(jobs.c.kb_id == line.kb_id).with_for_update(skip_locked=True, of=jobs)
        ).scalar_one_or_none()
        if chosen is None:
            continue
        row = (
            connection.execute(
                update(jobs)
                .where(jobs.c.id == chosen)
                .values(
                    state=JobState.RUNNING,
                    lease_owner=owner,
                    lease_expires_us=now_us + lease_us,
                    attempt=jobs.c.attempt + 1,
                    updated_us=now_us,
                    change_seq=jobs.c.change_seq + 1,
                )
                .returning(*jobs.c)
            )
            .mappings()
            .one()
        )
        taken.append(to_job(row))
        _served(lines, line, row["created_us"])
    return taken


def _served(lines: list[_Line], line: _Line, oldest_us: int) -> None:
    """Count the job that was taken, and let its line queue up again behind the others."""
    lines.append(_Line(line.running_in_tenant, line.running_here, oldest_us, line.kb_id, line.kind, line.tenant))
    for other in lines:
        other.running_in_tenant += other.tenant == line.tenant
        other.running_here += other.kb_id == line.kb_id
    heapq.heapify(lines)


def _lines(connection: Connection, kinds: Sequence[JobKind], now_us: int) -> list[_Line]:
    running = connection.execute(
        select(jobs.c.tenant_id, jobs.c.kb_id, func.count().label("running"))
        .where(jobs.c.state == JobState.RUNNING)
        .group_by(jobs.c.tenant_id, jobs.c.kb_id)
    ).all()
    in_tenant: Counter[str] = Counter()
    here: Counter[str] = Counter()
    for row in running:
        in_tenant[row.tenant_id] += row.running
        here[row.kb_id] += row.running
    lines = [
        _Line(in_tenant[row.tenant_id], here[row.kb_id], row.oldest_us, row.kb_id, kind, row.tenant_id)
        for kind in kinds
        for row in connection.execute(_heads(kind, now_us))
    ]
    heapq.heapify(lines)
    return lines


def _heads(kind: JobKind, now_us: int) -> Select[str, str, int]:
    """The knowledge bases with due jobs of `kind`, and when the oldest was created.

    The recursion jumps from one knowledge base to the next in the index, so that a hundred thousand jobs of one
    cost no more than one does.
    """
    waiting = and_(jobs.c.state == JobState.PENDING, jobs.c.kind == kind)
    first = select(func.min(jobs.c.kb_id).label("kb_id")).where(waiting).cte("lines", recursive=True)
    following = select(func.min(jobs.c.kb_id)).where(waiting, jobs.c.kb_id > first.c.kb_id).scalar_subquery()
    lines = first.union_all(select(following).where(first.c.kb_id.is_not(None)))
    due = _due(kind, now_us).with_only_columns(jobs.c.created_us).where(jobs.c.kb_id == lines.c.kb_id)
    oldest = due.correlate(lines).scalar_subquery().label("oldest_us")
    heads = select(lines.c.kb_id, oldest).where(lines.c.kb_id.is_not(None)).subquery("heads")
    return (
        select(heads.c.kb_id, knowledge_bases.c.tenant_id, heads.c.oldest_us)
        .join(knowledge_bases, knowledge_bases.c.id == heads.c.kb_id)
        .where(heads.c.oldest_us.is_not(None))
    )


def _due(kind: str, now_us: int) -> Select[str]:
    """The oldest due job of `kind`. New metadata waits until the ingestion of the same document has ended."""
    query = (
        select(jobs.c.id)
        .where(jobs.c.state == JobState.PENDING, jobs.c.kind == kind, jobs.c.not_before_us <= now_us)
        .order_by(jobs.c.created_us, jobs.c.id)
        .limit(1)
    )
    if kind == JobKind.UPDATE_METADATA:
        other = jobs.alias("other")
        ingesting = select(other.c.id).where(
            other.c.document_id == jobs.c.document_id,
            other.c.state.in_(OPEN_STATES),
            other.c.kind == JobKind.INGEST,
        )
        query = query.where(or_(jobs.c.document_id.is_(None), ~ingesting.correlate(jobs).exists()))
    return query
