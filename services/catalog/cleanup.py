"""What is out of sight and not yet removed, for the check that nothing was forgotten."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, or_, select

from services.catalog.database import Database
from services.catalog.rows import to_time
from services.catalog.tables import doc_versions, knowledge_bases
from services.catalog.types import VersionState
from services.domain.ids import DocVersionId, KnowledgeBaseId, TenantId


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCleanup:
    """A version (or, where it is None, a whole knowledge base) that ended at `since` and is not cleaned up."""

    tenant_id: TenantId
    knowledge_base_id: KnowledgeBaseId
    version: DocVersionId | None
    since: datetime


class Cleanup:
    """Looks over all tenants: for the operator and the worker, never for a caller."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def pending(self, *, limit: int = 1000) -> tuple[PendingCleanup, ...]:
        """Deleted knowledge bases, then ended versions of the living ones, up to `limit` of each."""

        def work(connection: Connection) -> tuple[PendingCleanup, ...]:
            return (*_knowledge_bases(connection, limit), *_versions(connection, limit))

        return await self._database.read(work)

    async def living(
        self, *, after: KnowledgeBaseId | None = None, limit: int = 100
    ) -> tuple[tuple[TenantId, KnowledgeBaseId], ...]:
        """Knowledge bases that are not deleted, by id, from the first one behind `after` on."""
        table = knowledge_bases.c
        query = select(table.tenant_id, table.id).where(table.deleted_us.is_(None)).order_by(table.id).limit(limit)
        if after is not None:
            query = query.where(table.id > after)

        def work(connection: Connection) -> tuple[tuple[TenantId, KnowledgeBaseId], ...]:
            return tuple((TenantId(row.tenant_id), KnowledgeBaseId(row.id)) for row in connection.execute(query))

        return await self._database.read(work)

    async def unknown_knowledge_bases(self, kb_ids: Sequence[KnowledgeBaseId]) -> tuple[KnowledgeBaseId, ...]:
        """Those of `kb_ids` that the catalogue has no trace of, not even as deleted."""

        def work(connection: Connection) -> tuple[KnowledgeBaseId, ...]:
            query = select(knowledge_bases.c.id).where(knowledge_bases.c.id.in_(kb_ids))
            known = set(connection.execute(query).scalars())
            return tuple(kb_id for kb_id in kb_ids if kb_id not in known)

        return await self._database.read(work)

    async def spent_versions(
        self, kb_id: KnowledgeBaseId, versions: Sequence[DocVersionId]
    ) -> tuple[DocVersionId, ...]:
        """Those of `versions` of which nothing should be stored: unknown ones, and ended ones that were cleaned up.

        A version stays spent once it is, so what is stored of it may be removed whatever happens meanwhile.
        """
        table = doc_versions.c
        in_use = (VersionState.PENDING, VersionState.RUNNING, VersionState.LIVE)

        def work(connection: Connection) -> tuple[DocVersionId, ...]:
            query = select(table.id).where(
                table.kb_id == kb_id, table.id.in_(versions), or_(table.hidden, table.state.in_(in_use))
            )
            alive = set(connection.execute(query).scalars())
            return tuple(version for version in versions if version not in alive)

        return await self._database.read(work)


def _knowledge_bases(connection: Connection, limit: int) -> list[PendingCleanup]:
    table = knowledge_bases.c
    query = select(table.id, table.tenant_id, table.deleted_us).where(table.deleted_us.is_not(None)).limit(limit)
    return [
        PendingCleanup(
            tenant_id=TenantId(row.tenant_id),
            knowledge_base_id=KnowledgeBaseId(row.id),
            version=None,
            since=to_time(row.deleted_us),
        )
        for row in connection.execute(query)
    ]


def _versions(connection: Connection, limit: int) -> list[PendingCleanup]:
    table = doc_versions.c
    query = (
        select(table.id, table.tenant_id, table.kb_id, table.retired_us)
        .join(knowledge_bases, knowledge_bases.c.id == table.kb_id)
        .where(
            table.hidden,
            table.state.not_in((VersionState.PENDING, VersionState.RUNNING)),
            knowledge_bases.c.deleted_us.is_(None),
        )
        .limit(limit)
    )
    return [
        PendingCleanup(
            tenant_id=TenantId(row.tenant_id),
            knowledge_base_id=KnowledgeBaseId(row.kb_id),
            version=DocVersionId(row.id),
            since=to_time(row.retired_us),
        )
        for row in connection.execute(query)
    ]
