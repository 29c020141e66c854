"""Documents: accept an upload, look up, list, delete."""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, RowMapping, delete, func, select, update

from services.catalog.database import Database
from services.catalog.job_queue import cancel_open, enqueue
from services.catalog.job_types import JobKind
from services.catalog.lifecycle import (
    IN_FLIGHT,
    abandon_ingest,
    add_to_index,
    end_version,
    forget_cleaned_versions,
    lock_knowledge_base,
)
from services.catalog.paging import decode_token, list_fingerprint, page_size_of, to_page
from services.catalog.rows import decode_metadata, encode_metadata, to_document, to_time
from services.catalog.settings import CatalogSettings
from services.catalog.tables import doc_versions, documents, jobs, knowledge_bases
from services.catalog.types import (
    DisplayedDocument,
    Document,
    DocumentState,
    Page,
    UploadOutcome,
    UploadSpec,
    VersionState,
)
from services.catalog.upload import Acceptance, check_upload
from services.common.errors import NotFound
from services.domain.blocks import DocumentKind, DocumentMetadata
from services.domain.ids import DocumentId, DocVersionId, KnowledgeBaseId, TenantId


class Documents:
    """What a tenant's knowledge bases hold. Another tenant's id is DOCUMENT_NOT_FOUND, as an unknown one is."""

    def __init__(self, database: Database, settings: CatalogSettings) -> None:
        self._database = database
        self._settings = settings

    async def accept_upload(self, tenant: TenantId, kb_id: KnowledgeBaseId, spec: UploadSpec) -> UploadOutcome:
        """Take in bytes that are stored under `spec.blob_key`: version and INGEST job are durable on return.

        Same name, same bytes as the live or in-flight version: UNCHANGED, only new metadata is taken over. Same name,
        other bytes: REPLACEMENT, which supersedes one still in flight. A repeated request_id gets the first outcome.
        Errors: KNOWLEDGE_BASE_NOT_FOUND, DUPLICATE_DOCUMENT (metadata `duplicate_of`), REQUEST_ID_REUSED.
        """
        check_upload(spec)
        now_us = self._database.now_us()

        def work(connection: Connection) -> UploadOutcome:
            return Acceptance(
                connection=connection, settings=self._settings, tenant=tenant, kb_id=kb_id, spec=spec, now_us=now_us
            ).run()

        return await self._database.write(work)

    async def get(self, tenant: TenantId, document_id: DocumentId) -> Document:
        return await self._database.read(lambda connection: to_document(_visible(connection, tenant, document_id)))

    async def list(
        self,
        tenant: TenantId,
        kb_id: KnowledgeBaseId,
        *,
        states: Sequence[DocumentState] = (),
        name_prefix: str = "",
        page_size: int = 0,
        page_token: str = "",
    ) -> Page[Document]:
        """Oldest first. No states: all of them. Errors: KNOWLEDGE_BASE_NOT_FOUND, INVALID_PAGE_TOKEN."""
        size = page_size_of(page_size)
        fingerprint = list_fingerprint("documents", tenant, kb_id, sorted(states), name_prefix)
        after = decode_token(page_token, fingerprint)
        query = (
            select(documents)
            .where(documents.c.kb_id == kb_id, documents.c.deleted_us.is_(None), documents.c.id > after)
            .order_by(documents.c.id)
            .limit(size + 1)
        )
        if states:
            query = query.where(documents.c.state.in_(states))
        if name_prefix:
            query = query.where(func.substr(documents.c.name, 1, len(name_prefix)) == name_prefix)

        def work(connection: Connection) -> Page[Document]:
            _require_knowledge_base(connection, tenant, kb_id)
            found = [to_document(row) for row in connection.execute(query).mappings()]
            return to_page(found, size, fingerprint, [document.id for document in found])

        return await self._database.read(work)

    async def change_metadata(
        self, tenant: TenantId, document_id: DocumentId, change: Callable[[DocumentMetadata], DocumentMetadata]
    ) -> Document:
        """Replace what is known of a document; a job that is queued with it brings that into the index.

        `change` gets what is known now, and nobody else changes it meanwhile. It may run more than once. A version in
        flight is told too, so that it does not come with what was known before.
        """
        now_us = self._database.now_us()

        def work(connection: Connection) -> Document:
            kb_id = _lock(connection, tenant, document_id)
            document = _visible(connection, tenant, document_id)
            encoded = encode_metadata(change(decode_metadata(document["metadata"])))
            versions = {document["newest_version"], document["live_version"]} - {None}
            connection.execute(
                update(doc_versions).where(doc_versions.c.id.in_(versions)).values(caller_metadata=encoded)
            )
            connection.execute(
                update(documents).where(documents.c.id == document_id).values(metadata=encoded, updated_us=now_us)
            )
            enqueue(
                connection,
                JobKind.UPDATE_METADATA,
                tenant=tenant,
                kb_id=kb_id,
                document_id=document_id,
                now_us=now_us,
                max_attempts=self._settings.max_attempts,
            )
            return to_document(_visible(connection, tenant, document_id))

        return await self._database.write(work)

    async def delete(self, tenant: TenantId, document_id: DocumentId) -> None:
        """Invisible when this returns, and for good: ingestion is cancelled, removal of points and blobs queued."""
        now_us = self._database.now_us()
        await self._database.write(lambda connection: self._delete(connection, tenant, document_id, now_us))

    def _delete(self, connection: Connection, tenant: TenantId, document_id: DocumentId, now_us: int) -> None:
        _lock(connection, tenant, document_id)
        connection.execute(
            update(documents)
            .where(documents.c.id == document_id)
            .values(deleted_us=now_us, updated_us=now_us, live_version=None)
        )
        versions = (
            connection.execute(
                select(doc_versions).where(
                    doc_versions.c.document_id == document_id, doc_versions.c.state.in_((*IN_FLIGHT, VersionState.LIVE))
                )
            )
            .mappings()
            .all()
        )
        for version in versions:
            self._delete_version(connection, version, now_us)
        cancel_open(
            connection, jobs.c.document_id == document_id, jobs.c.kind == JobKind.UPDATE_METADATA, now_us=now_us
        )
        deleted = connection.execute(select(documents).where(documents.c.id == document_id)).mappings().one()
        forget_cleaned_versions(connection, deleted)
        left = select(func.count()).where(doc_versions.c.document_id == document_id)
        if connection.execute(left).scalar_one() == 0:
            connection.execute(delete(documents).where(documents.c.id == document_id))

    def _delete_version(self, connection: Connection, version: RowMapping, now_us: int) -> None:
        if version["state"] in IN_FLIGHT:
            abandon_ingest(connection, version, VersionState.DELETED, settings=self._settings, now_us=now_us)
            return
        end_version(connection, version, VersionState.DELETED, settings=self._settings, now_us=now_us)
        add_to_index(
            connection,
            version["index_version"],
            chunks=-version["chunk_count"],
            bm25_length=-version["bm25_length_total"],
        )

    async def documents_by_version(
        self, tenant: TenantId, versions: Sequence[DocVersionId]
    ) -> dict[DocVersionId, DisplayedDocument]:
        """What to show of the documents that hits came from.

        A version is missing from the answer where it must not be shown: deleted meanwhile, never live, or of another
        tenant. Drop its hits. A version replaced during the search is still there.
        """
        if not versions:
            return {}
        query = _DISPLAYED.where(doc_versions.c.id.in_(versions), doc_versions.c.tenant_id == tenant)

        def work(connection: Connection) -> dict[DocVersionId, DisplayedDocument]:
            return {DocVersionId(row["version"]): _displayed(row) for row in connection.execute(query).mappings()}

        return await self._database.read(work)


_DISPLAYED = (
    select(
        doc_versions.c.id.label("version"),
        documents.c.id,
        documents.c.kb_id,
        documents.c.name,
        documents.c.kind,
        documents.c.page_count,
        documents.c.metadata,
        documents.c.updated_us,
    )
    .join(documents, documents.c.id == doc_versions.c.document_id)
    .join(knowledge_bases, knowledge_bases.c.id == documents.c.kb_id)
    .where(
        doc_versions.c.state.in_((VersionState.LIVE, VersionState.RETIRED)),
        documents.c.deleted_us.is_(None),
        knowledge_bases.c.deleted_us.is_(None),
    )
)


def _displayed(row: RowMapping) -> DisplayedDocument:
    return DisplayedDocument(
        document_id=DocumentId(row["id"]),
        knowledge_base_id=KnowledgeBaseId(row["kb_id"]),
        name=row["name"],
        kind=None if row["kind"] is None else DocumentKind(row["kind"]),
        page_count=row["page_count"],
        metadata=decode_metadata(row["metadata"]),
        updated_time=to_time(row["updated_us"]),
    )


def _visible(connection: Connection, tenant: TenantId, document_id: DocumentId) -> RowMapping:
    row = (
        connection.execute(
            select(documents)
            .join(knowledge_bases, knowledge_bases.c.id == documents.c.kb_id)
            .where(
                documents.c.id == document_id,
                documents.c.tenant_id == tenant,
                documents.c.deleted_us.is_(None),
                knowledge_bases.c.deleted_us.is_(None),
            )
        )
        .mappings()
        .one_or_none()
    )
    if row is None:
        raise NotFound.document(document_id)
    return row


def _lock(connection: Connection, tenant: TenantId, document_id: DocumentId) -> KnowledgeBaseId:
    """Lock the document's knowledge base; from here on nobody else changes the document. DOCUMENT_NOT_FOUND."""
    kb_id = KnowledgeBaseId(_visible(connection, tenant, document_id)["kb_id"])
    try:
        lock_knowledge_base(connection, tenant, kb_id)
    except NotFound as error:
        raise NotFound.document(document_id) from error
    _visible(connection, tenant, document_id)  # it may have been deleted while we waited
    return kb_id


def _require_knowledge_base(connection: Connection, tenant: TenantId, kb_id: KnowledgeBaseId) -> None:
    found = connection.execute(
        select(knowledge_bases.c.id).where(
            knowledge_bases.c.id == kb_id,
            knowledge_bases.c.tenant_id == tenant,
            knowledge_bases.c.deleted_us.is_(None),
        )
    ).one_or_none()
    if found is None:
        raise NotFound.knowledge_base(kb_id)
