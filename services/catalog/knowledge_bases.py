"""Knowledge bases: create, look up, list, change, delete, and the record that a deleted one is gone."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, func, insert, select, update

from services.catalog.database import Database
from services.catalog.job_queue import cancel_open, enqueue
from services.catalog.job_types import JobKind
from services.catalog.lifecycle import lock_knowledge_base
from services.catalog.paging import decode_token, fingerprint_of, list_fingerprint, page_size_of, to_page
from services.catalog.requests import claim, remember
from services.catalog.rows import (
    decode_chunking,
    encode_chunking,
    encode_retrieval,
    to_index_version,
    to_knowledge_base,
)
from services.catalog.settings import CatalogSettings
from services.catalog.tables import doc_versions, documents, index_versions, jobs, knowledge_bases, requests
from services.catalog.types import (
    DocumentState,
    IndexVersion,
    KnowledgeBase,
    KnowledgeBaseChange,
    KnowledgeBaseSpec,
    KnowledgeBaseStatistics,
    Page,
    SourceType,
)
from services.common.errors import FieldViolation, InvalidRequest, NotFound, Reason
from services.domain.ids import KnowledgeBaseId, TenantId, new_id

NAME_MAX_CHARS = 200
_SCOPE = "create_knowledge_base"
_PURGE_SLICE = 2000


class KnowledgeBases:
    """A tenant's knowledge bases. Another tenant's id is KNOWLEDGE_BASE_NOT_FOUND, as an unknown one is."""

    def __init__(self, database: Database, settings: CatalogSettings) -> None:
        self._database = database
        self._settings = settings

    async def create(self, tenant: TenantId, spec: KnowledgeBaseSpec) -> KnowledgeBase:
        """Make a knowledge base with its first index version; a repeated request_id gets the first one.

        Errors: INVALID_REQUEST, REQUEST_ID_REUSED.
        """
        _check_name(spec.name)
        now_us = self._database.now_us()
        fingerprint = fingerprint_of({**asdict(spec), "request_id": ""})

        def work(connection: Connection) -> KnowledgeBase:
            first = claim(
                connection,
                tenant,
                _SCOPE,
                spec.request_id,
                fingerprint=fingerprint,
                now_us=now_us,
                ttl_us=int(self._settings.request_id_ttl_s * 1_000_000),
            )
            if first is not None:
                return _get(connection, tenant, KnowledgeBaseId(first["id"]))
            kb_id = _insert(connection, tenant, spec, now_us)
            remember(connection, tenant, _SCOPE, spec.request_id, {"id": kb_id})
            return _get(connection, tenant, kb_id)

        return await self._database.write(work)

    async def get(self, tenant: TenantId, kb_id: KnowledgeBaseId) -> KnowledgeBase:
        return await self._database.read(lambda connection: _get(connection, tenant, kb_id))

    async def get_deleted(self, kb_id: KnowledgeBaseId) -> KnowledgeBase | None:
        """A deleted knowledge base that is not purged yet, for the worker that purges it."""

        def work(connection: Connection) -> KnowledgeBase | None:
            deleted = (knowledge_bases.c.id == kb_id, knowledge_bases.c.deleted_us.is_not(None))
            return next(iter(_load(connection, *deleted)), None)

        return await self._database.read(work)

    async def list(self, tenant: TenantId, *, page_size: int = 0, page_token: str = "") -> Page[KnowledgeBase]:
        """Oldest first. Errors: INVALID_PAGE_TOKEN."""
        size = page_size_of(page_size)
        fingerprint = list_fingerprint("knowledge_bases", tenant)
        after = decode_token(page_token, fingerprint)
        query = (
            select(knowledge_bases.c.id)
            .where(
                knowledge_bases.c.tenant_id == tenant,
                knowledge_bases.c.deleted_us.is_(None),
                knowledge_bases.c.id > after,
            )
            .order_by(knowledge_bases.c.id)
            .limit(size + 1)
        )

        def work(connection: Connection) -> Page[KnowledgeBase]:
            ids = [KnowledgeBaseId(kb_id) for kb_id in connection.execute(query).scalars()]
            page = to_page(ids, size, fingerprint, ids)
            return Page(entries=_read(connection, tenant, page.entries), next_page_token=page.next_page_token)

        return await self._database.read(work)

    async def update(
        self, tenant: TenantId, kb_id: KnowledgeBaseId, change_of: Callable[[KnowledgeBase], KnowledgeBaseChange]
    ) -> KnowledgeBase:
        """Apply what `change_of` makes of the knowledge base as it is, under its lock: no update is lost.

        Errors: what `change_of` raises; IMMUTABLE_FIELD when chunking or embedding model would change;
        KNOWLEDGE_BASE_NOT_FOUND.
        """
        now_us = self._database.now_us()

        def work(connection: Connection) -> KnowledgeBase:
            row = lock_knowledge_base(connection, tenant, kb_id)
            change = change_of(_get(connection, tenant, kb_id))
            if change.name is not None:
                _check_name(change.name)
            if change.chunking is not None and change.chunking != decode_chunking(row["chunking"]):
                raise _immutable("chunking")
            if change.embedding_model is not None and change.embedding_model != row["embedding_model"]:
                raise _immutable("embedding_model")
            values = {**_columns_of(change), "updated_us": now_us}
            connection.execute(update(knowledge_bases).where(knowledge_bases.c.id == kb_id).values(**values))
            return _get(connection, tenant, kb_id)

        return await self._database.write(work)

    async def delete(self, tenant: TenantId, kb_id: KnowledgeBaseId) -> None:
        """Invisible everywhere when this returns; its jobs are cancelled, a PURGE job removes what is stored."""
        now_us = self._database.now_us()

        def work(connection: Connection) -> None:
            lock_knowledge_base(connection, tenant, kb_id)
            connection.execute(update(knowledge_bases).where(knowledge_bases.c.id == kb_id).values(deleted_us=now_us))
            lease_end_us = cancel_open(connection, jobs.c.kb_id == kb_id, now_us=now_us)
            enqueue(
                connection,
                JobKind.PURGE,
                tenant=tenant,
                kb_id=kb_id,
                now_us=now_us,
                not_before_us=lease_end_us,
                max_attempts=self._settings.max_attempts,
            )

        await self._database.write(work)

    async def purge_done(self, kb_id: KnowledgeBaseId) -> bool:
        """Record that nothing of a deleted knowledge base is stored any more: its rows go. False if it is alive."""
        for table, column in _PURGED:
            while (removed := await self._database.write(lambda c, t=table, k=column: _purge(c, t, k, kb_id))) > 0:
                pass
            if removed < 0:
                return False

        def work(connection: Connection) -> bool:
            connection.execute(delete(requests).where(requests.c.scope == f"upload:{kb_id}"))
            connection.execute(delete(index_versions).where(index_versions.c.kb_id == kb_id))
            connection.execute(
                delete(knowledge_bases).where(knowledge_bases.c.id == kb_id, knowledge_bases.c.deleted_us.is_not(None))
            )
            return True

        return await self._database.write(work)


#: What a purge deletes slice by slice, so that other writers get their turn, with the key of each.
_PURGED: tuple[tuple[Table, str], ...] = ((doc_versions, "id"), (documents, "id"), (jobs, "id"))


def _purge(connection: Connection, table: Table, key: str, kb_id: KnowledgeBaseId) -> int:
    """Delete one slice; returns how many rows, -1 where the knowledge base is alive."""
    alive = select(knowledge_bases.c.id).where(knowledge_bases.c.id == kb_id, knowledge_bases.c.deleted_us.is_(None))
    if connection.execute(alive).one_or_none() is not None:
        return -1
    of_it = [table.c.kb_id == kb_id]
    if table is jobs:
        of_it.append(jobs.c.kind != JobKind.PURGE)
    chosen = select(table.c[key]).where(*of_it).limit(_PURGE_SLICE)
    return connection.execute(delete(table).where(table.c[key].in_(chosen))).rowcount


def _insert(connection: Connection, tenant: TenantId, spec: KnowledgeBaseSpec, now_us: int) -> KnowledgeBaseId:
    kb_id = KnowledgeBaseId(new_id("kb"))
    index_version = connection.execute(
        insert(index_versions)
        .values(
            kb_id=kb_id,
            collection=spec.collection,
            dimensions=spec.dimensions,
            tokenizer_version=spec.tokenizer_version,
            created_us=now_us,
        )
        .returning(index_versions.c.id)
    ).scalar_one()
    connection.execute(
        insert(knowledge_bases).values(
            id=kb_id,
            tenant_id=tenant,
            name=spec.name,
            description=spec.description,
            type=spec.type,
            chunking=encode_chunking(spec.chunking),
            effective_chunk_size=spec.effective_chunk_size or spec.chunking.size,
            retrieval=encode_retrieval(spec.retrieval),
            embedding_model=spec.embedding_model,
            sparse_model=spec.sparse_model,
            language=spec.language,
            labels=spec.labels,
            source_type=SourceType.MANUAL,
            live_index_version=index_version,
            created_us=now_us,
            updated_us=now_us,
        )
    )
    return kb_id


def _columns_of(change: KnowledgeBaseChange) -> dict[str, Any]:
    given = {
        "name": change.name,
        "description": change.description,
        "labels": change.labels,
        "retrieval": None if change.retrieval is None else encode_retrieval(change.retrieval),
    }
    return {column: value for column, value in given.items() if value is not None}


def _get(connection: Connection, tenant: TenantId, kb_id: KnowledgeBaseId) -> KnowledgeBase:
    found = _read(connection, tenant, (kb_id,))
    if not found:
        raise NotFound.knowledge_base(kb_id)
    return found[0]


def _read(connection: Connection, tenant: TenantId, ids: Sequence[KnowledgeBaseId]) -> tuple[KnowledgeBase, ...]:
    """The visible ones among `ids`, oldest first."""
    visible = (knowledge_bases.c.tenant_id == tenant, knowledge_bases.c.deleted_us.is_(None))
    return _load(connection, knowledge_bases.c.id.in_(ids), *visible)


def _load(connection: Connection, *conditions: ColumnElement[bool]) -> tuple[KnowledgeBase, ...]:
    query = select(knowledge_bases).where(*conditions).order_by(knowledge_bases.c.id)
    rows = connection.execute(query).mappings().all()
    live = [row["live_index_version"] for row in rows]
    found = connection.execute(select(index_versions).where(index_versions.c.id.in_(live)))
    indexes: dict[str, IndexVersion] = {row["kb_id"]: to_index_version(row) for row in found.mappings()}
    statistics = _statistics(connection, [row["id"] for row in rows])
    return tuple(
        to_knowledge_base(row, indexes[row["id"]], statistics.get(row["id"], KnowledgeBaseStatistics())) for row in rows
    )


def _statistics(connection: Connection, ids: Sequence[str]) -> dict[str, KnowledgeBaseStatistics]:
    counted = connection.execute(
        select(
            documents.c.kb_id,
            documents.c.state,
            func.count().label("documents"),
            func.sum(documents.c.chunk_count).label("chunks"),
            func.sum(documents.c.token_count).label("tokens"),
            func.sum(documents.c.size_bytes).label("bytes"),
        )
        .where(documents.c.kb_id.in_(ids), documents.c.deleted_us.is_(None))
        .group_by(documents.c.kb_id, documents.c.state)
    )
    totals: dict[str, KnowledgeBaseStatistics] = {}
    for row in counted:
        before = totals.get(row.kb_id, KnowledgeBaseStatistics())
        totals[row.kb_id] = KnowledgeBaseStatistics(
            documents={**before.documents, DocumentState(row.state): row.documents},
            chunk_count=before.chunk_count + int(row.chunks),
            token_count=before.token_count + int(row.tokens),
            size_bytes=before.size_bytes + int(row.bytes),
        )
    return totals


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > NAME_MAX_CHARS or "\x00" in name:
        description = f"must have 1 to {NAME_MAX_CHARS} characters"
        raise InvalidRequest.of(FieldViolation(field="name", description=description))


def _immutable(field: str) -> InvalidRequest:
    description = f"the {field} of a knowledge base is fixed when it is created; create another one and upload again"
    return InvalidRequest.of(FieldViolation(field=field, description=description), reason=Reason.IMMUTABLE_FIELD)
