"""How versions of a document change state, inside one transaction that holds the knowledge base's row lock.

Lock order, everywhere: knowledge base, then document and versions, then jobs.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, delete, select, update

from services.catalog.job_queue import cancel_open, enqueue
from services.catalog.job_types import JobKind
from services.catalog.settings import CatalogSettings
from services.catalog.tables import doc_versions, documents, index_versions, jobs, knowledge_bases
from services.catalog.types import DocumentState, Failure, VersionState
from services.common.errors import NotFound
from services.domain.ids import DocumentId, DocVersionId, KnowledgeBaseId, TenantId

IN_FLIGHT = (VersionState.PENDING, VersionState.RUNNING)
_FAILURE_MAX_CHARS = 2000


def lock_knowledge_base(connection: Connection, tenant: TenantId, kb_id: KnowledgeBaseId) -> RowMapping:
    """The row of a visible knowledge base, locked until the transaction ends. Errors: KNOWLEDGE_BASE_NOT_FOUND."""
    row = (
        connection.execute(
            select(knowledge_bases)
            .where(
                knowledge_bases.c.id == kb_id,
                knowledge_bases.c.tenant_id == tenant,
                knowledge_bases.c.deleted_us.is_(None),
            )
            .with_for_update()
        )
        .mappings()
        .one_or_none()
    )
    if row is None:
        raise NotFound.knowledge_base(kb_id)
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A version and its document, both as they are now, under the lock of their knowledge base."""

    version: RowMapping
    document: RowMapping

    @property
    def id(self) -> DocVersionId:
        return DocVersionId(self.version["id"])

    @property
    def in_flight(self) -> bool:
        return self.version["state"] in IN_FLIGHT

    @property
    def newest(self) -> bool:
        return self.document["newest_version"] == self.version["id"]


def hold_version(connection: Connection, version: DocVersionId) -> Held | None:
    """Lock the knowledge base of `version`, then read it. None when it, its document or knowledge base is gone."""
    kb_id = connection.execute(select(doc_versions.c.kb_id).where(doc_versions.c.id == version)).scalar_one_or_none()
    if kb_id is None:
        return None
    alive = connection.execute(
        select(knowledge_bases.c.id)
        .where(knowledge_bases.c.id == kb_id, knowledge_bases.c.deleted_us.is_(None))
        .with_for_update()
    ).one_or_none()
    row = connection.execute(select(doc_versions).where(doc_versions.c.id == version)).mappings().one_or_none()
    if alive is None or row is None:
        return None
    document = (
        connection.execute(select(documents).where(documents.c.id == row["document_id"])).mappings().one_or_none()
    )
    if document is None or document["deleted_us"] is not None:
        return None
    return Held(version=row, document=document)


def end_version(
    connection: Connection,
    version: RowMapping,
    state: VersionState,
    *,
    settings: CatalogSettings,
    now_us: int,
    not_before_us: int = 0,
) -> None:
    """Put a version out of sight for good, and enqueue the removal of its points and blobs."""
    connection.execute(
        update(doc_versions)
        .where(doc_versions.c.id == version["id"])
        .values(state=state, hidden=True, retired_us=now_us)
    )
    enqueue(
        connection,
        JobKind.RETIRE,
        tenant=TenantId(version["tenant_id"]),
        kb_id=KnowledgeBaseId(version["kb_id"]),
        document_id=DocumentId(version["document_id"]),
        version=DocVersionId(version["id"]),
        now_us=now_us,
        not_before_us=not_before_us,
        max_attempts=settings.max_attempts,
    )


def abandon_ingest(
    connection: Connection, version: RowMapping, state: VersionState, *, settings: CatalogSettings, now_us: int
) -> None:
    """Stop the ingestion of a version in flight: its job is cancelled, clean-up waits for the worker's lease to end."""
    lease_end_us = cancel_open(
        connection,
        jobs.c.document_id == version["document_id"],
        jobs.c.version == version["id"],
        jobs.c.kind == JobKind.INGEST,
        now_us=now_us,
    )
    end_version(connection, version, state, settings=settings, now_us=now_us, not_before_us=lease_end_us)


def settle_document(
    connection: Connection, held: Held, state: DocumentState, *, now_us: int, error: Failure | None = None
) -> None:
    """After a version ended without going live: DONE where an older one is live, else `state`; `error` is kept."""
    if not held.newest:
        return
    live = held.document["live_version"] is not None
    connection.execute(
        update(documents)
        .where(documents.c.id == held.document["id"])
        .values(
            state=DocumentState.DONE if live else state,
            error_reason=error and error.reason[:64],
            error_message=error and error.message[:_FAILURE_MAX_CHARS],
            updated_us=now_us,
        )
    )


def fail_version(
    connection: Connection, version: DocVersionId, error: Failure, *, settings: CatalogSettings, now_us: int
) -> bool:
    """A version in flight becomes FAILED. False when it is in flight no more."""
    held = hold_version(connection, version)
    if held is None or not held.in_flight:
        return False
    end_version(connection, held.version, VersionState.FAILED, settings=settings, now_us=now_us)
    settle_document(connection, held, DocumentState.FAILED, now_us=now_us, error=error)
    return True


def cancel_version(connection: Connection, version: DocVersionId, *, settings: CatalogSettings, now_us: int) -> bool:
    """A version in flight becomes CANCELLED, and so does its job. False when it is in flight no more."""
    held = hold_version(connection, version)
    if held is None or not held.in_flight:
        return False
    abandon_ingest(connection, held.version, VersionState.CANCELLED, settings=settings, now_us=now_us)
    settle_document(connection, held, DocumentState.CANCELLED, now_us=now_us)
    return True


def add_to_index(connection: Connection, index_version: int, *, chunks: int, bm25_length: int) -> None:
    """Count a version in (positive) or out (negative) of the index version's totals."""
    connection.execute(
        update(index_versions)
        .where(index_versions.c.id == index_version)
        .values(
            chunk_count=index_versions.c.chunk_count + chunks,
            bm25_length_total=index_versions.c.bm25_length_total + bm25_length,
        )
    )


def forget_cleaned_versions(connection: Connection, document: RowMapping) -> None:
    """Delete the rows of versions whose clean-up is done and that nothing refers to any more."""
    kept = [v for v in (document["newest_version"], document["live_version"]) if v is not None]
    if document["deleted_us"] is not None:
        kept = []
    connection.execute(
        delete(doc_versions).where(
            doc_versions.c.document_id == document["id"],
            doc_versions.c.hidden.is_(False),
            doc_versions.c.id.not_in(kept),
        )
    )
