"""What every search reads first: settings, live index versions and hidden versions, as they stand in one moment."""

from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import JSON, Connection, RowMapping, Select, bindparam, func, select, type_coerce

from services.catalog.database import Database
from services.catalog.rows import decode_retrieval, to_index_version
from services.catalog.tables import doc_versions, index_versions, knowledge_bases
from services.catalog.types import KnowledgeBaseType, SearchedKnowledgeBase, SearchSnapshot
from services.common.errors import NotFound
from services.domain.ids import DocVersionId, KnowledgeBaseId, TenantId

_INDEX = "index_"

# Built once: SQLAlchemy finds the compiled form of a statement by its shape, and that of a ready one fastest.
_SETTINGS = (
    select(
        knowledge_bases.c.id,
        knowledge_bases.c.name,
        knowledge_bases.c.type,
        knowledge_bases.c.retrieval,
        knowledge_bases.c.embedding_model,
        knowledge_bases.c.sparse_model,
        knowledge_bases.c.language,
        *(column.label(_INDEX + column.name) for column in index_versions.c),
    )
    .join(index_versions, index_versions.c.id == knowledge_bases.c.live_index_version)
    .where(
        knowledge_bases.c.id.in_(bindparam("ids", expanding=True)),
        knowledge_bases.c.tenant_id == bindparam("tenant"),
        knowledge_bases.c.deleted_us.is_(None),
    )
)


def _hidden_by(aggregate: str) -> Select[Any, Any]:
    """One row a knowledge base: thousands of ids come as one JSON array ten times faster than as rows."""
    ids = type_coerce(getattr(func, aggregate)(doc_versions.c.id), JSON)
    return (
        select(doc_versions.c.kb_id, ids)
        .where(doc_versions.c.kb_id.in_(bindparam("ids", expanding=True)), doc_versions.c.hidden)
        .group_by(doc_versions.c.kb_id)
    )


_HIDDEN = {"sqlite": _hidden_by("json_group_array"), "postgresql": _hidden_by("json_agg")}


class Snapshots:
    """One read transaction per search."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search_snapshot(self, tenant: TenantId, kb_ids: Sequence[KnowledgeBaseId]) -> SearchSnapshot:
        """In the order of `kb_ids`. `hidden_doc_versions` are all that may have points and are not live.

        Errors: KNOWLEDGE_BASE_NOT_FOUND for the first one that is unknown, deleted or another tenant's.
        """
        return await self._database.read(lambda connection: _read(connection, tenant, tuple(kb_ids)))


def _read(connection: Connection, tenant: TenantId, kb_ids: tuple[KnowledgeBaseId, ...]) -> SearchSnapshot:
    found = connection.execute(_SETTINGS, {"ids": kb_ids, "tenant": tenant})
    rows: dict[str, RowMapping] = {row["id"]: row for row in found.mappings()}
    for kb_id in kb_ids:
        if kb_id not in rows:
            raise NotFound.knowledge_base(kb_id)
    hidden: dict[str, tuple[DocVersionId, ...]] = {}
    for kb_id, versions in connection.execute(_HIDDEN[connection.dialect.name], {"ids": kb_ids}):
        hidden[kb_id] = cast("tuple[DocVersionId, ...]", tuple(sorted(versions)))
    return SearchSnapshot(knowledge_bases=tuple(_searched(rows[kb_id], hidden.get(kb_id, ())) for kb_id in kb_ids))


def _searched(row: RowMapping, hidden: tuple[DocVersionId, ...]) -> SearchedKnowledgeBase:
    return SearchedKnowledgeBase(
        id=KnowledgeBaseId(row["id"]),
        name=row["name"],
        type=KnowledgeBaseType(row["type"]),
        retrieval=decode_retrieval(row["retrieval"]),
        embedding_model=row["embedding_model"],
        sparse_model=row["sparse_model"],
        language=row["language"],
        index=to_index_version(row, prefix=_INDEX),
        hidden_doc_versions=hidden,
    )
