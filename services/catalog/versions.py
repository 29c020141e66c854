"""Document versions: start, activate, fail, and the record that their points are gone."""

from sqlalchemy import Connection, delete, func, select, update

from services.catalog.database import Database
from services.catalog.lifecycle import (
    add_to_index,
    end_version,
    fail_version,
    forget_cleaned_versions,
    hold_version,
)
from services.catalog.rows import decode_metadata, encode_metadata, encode_warnings, merge_metadata, to_version
from services.catalog.settings import CatalogSettings
from services.catalog.tables import doc_versions, documents, index_versions
from services.catalog.types import DocumentState, DocumentVersion, Failure, VersionState, VersionStats
from services.common.errors import NotFound
from services.domain.ids import DocVersionId, IndexVersionId, KnowledgeBaseId, TenantId


class Versions:
    """The switch. Whatever happens around it, a document has at most one live version, and none once it is deleted."""

    def __init__(self, database: Database, settings: CatalogSettings) -> None:
        self._database = database
        self._settings = settings

    async def get(self, tenant: TenantId, version: DocVersionId) -> DocumentVersion:
        """Errors: DOCUMENT_NOT_FOUND, also for a version whose clean-up is done."""

        def work(connection: Connection) -> DocumentVersion:
            row = (
                connection.execute(
                    select(doc_versions).where(doc_versions.c.id == version, doc_versions.c.tenant_id == tenant)
                )
                .mappings()
                .one_or_none()
            )
            if row is None:
                raise NotFound.document(f"version {version}")
            return to_version(row)

        return await self._database.read(work)

    async def start(self, version: DocVersionId) -> bool:
        """Mark as RUNNING and hide its points, before the first is written. False when it is not to be ingested."""
        now_us = self._database.now_us()

        def work(connection: Connection) -> bool:
            held = hold_version(connection, version)
            if held is None or not held.in_flight:
                return False
            connection.execute(
                update(doc_versions).where(doc_versions.c.id == version).values(state=VersionState.RUNNING, hidden=True)
            )
            if held.newest:
                connection.execute(
                    update(documents)
                    .where(documents.c.id == held.document["id"])
                    .values(state=DocumentState.RUNNING, updated_us=now_us)
                )
            return True

        return await self._database.write(work)

    async def activate(self, version: DocVersionId, stats: VersionStats) -> bool:
        """Switch the document to `version` in one transaction; its points must be written by now.

        True also when it is live already. False, with nothing changed, when the document or knowledge base was
        deleted or a newer upload took its place: the clean-up of its points is queued then. The version that was
        live is RETIRED; its points are removed after `retire_delay_s`.
        """
        now_us = self._database.now_us()
        return await self._database.write(lambda connection: self._activate(connection, version, stats, now_us))

    def _activate(self, connection: Connection, version: DocVersionId, stats: VersionStats, now_us: int) -> bool:
        held = hold_version(connection, version)
        if held is None:
            return False
        if not held.in_flight:
            return held.version["state"] == VersionState.LIVE
        self._retire_live(connection, held.document["live_version"], now_us)
        connection.execute(
            update(doc_versions)
            .where(doc_versions.c.id == version)
            .values(
                state=VersionState.LIVE,
                hidden=False,
                extracted_metadata=encode_metadata(stats.metadata),
                chunk_count=stats.chunk_count,
                bm25_length_total=stats.bm25_length_total,
            )
        )
        add_to_index(
            connection, held.version["index_version"], chunks=stats.chunk_count, bm25_length=stats.bm25_length_total
        )
        _note_written_average(connection, held.version["index_version"], stats.written_average_length)
        effective = merge_metadata(stats.metadata, decode_metadata(held.version["caller_metadata"]))
        connection.execute(
            update(documents)
            .where(documents.c.id == held.document["id"])
            .values(
                state=DocumentState.DONE,
                live_version=version,
                kind=stats.kind,
                metadata=encode_metadata(effective),
                page_count=stats.page_count,
                chunk_count=stats.chunk_count,
                token_count=stats.token_count,
                warnings=encode_warnings(stats.warnings),
                error_reason=None,
                error_message=None,
                updated_us=now_us,
            )
        )
        return True

    def _retire_live(self, connection: Connection, live: int | None, now_us: int) -> None:
        if live is None:
            return
        row = connection.execute(select(doc_versions).where(doc_versions.c.id == live)).mappings().one()
        end_version(
            connection,
            row,
            VersionState.RETIRED,
            settings=self._settings,
            now_us=now_us,
            not_before_us=now_us + int(self._settings.retire_delay_s * 1_000_000),
        )
        add_to_index(
            connection, row["index_version"], chunks=-row["chunk_count"], bm25_length=-row["bm25_length_total"]
        )

    async def fail(self, version: DocVersionId, reason: str, message: str) -> bool:
        """Give the version up. The document is FAILED only where no older version is live; the error is kept."""
        now_us = self._database.now_us()
        error = Failure(reason=reason, message=message)
        return await self._database.write(
            lambda connection: fail_version(connection, version, error, settings=self._settings, now_us=now_us)
        )

    async def retire_done(self, version: DocVersionId) -> bool:
        """Record that no point or blob of an ended version is left. False for one that has not ended, or is unknown."""

        def work(connection: Connection) -> bool:
            ended = connection.execute(
                update(doc_versions)
                .where(
                    doc_versions.c.id == version,
                    doc_versions.c.state.not_in((VersionState.PENDING, VersionState.RUNNING, VersionState.LIVE)),
                )
                .values(hidden=False)
                .returning(doc_versions.c.document_id)
            ).scalar_one_or_none()
            if ended is None:
                return False
            document = connection.execute(select(documents).where(documents.c.id == ended)).mappings().one()
            forget_cleaned_versions(connection, document)
            if document["deleted_us"] is not None:
                left = select(func.count()).where(doc_versions.c.document_id == ended)
                if connection.execute(left).scalar_one() == 0:
                    connection.execute(delete(documents).where(documents.c.id == ended))
            return True

        return await self._database.write(work)

    async def record_sparse_rewrite(self, index_version: IndexVersionId, average_length: float) -> None:
        """The sparse vectors of the index version are now computed with this average length (terms per chunk)."""

        def work(connection: Connection) -> None:
            connection.execute(
                update(index_versions)
                .where(index_versions.c.id == index_version)
                .values(written_average_length=average_length)
            )

        await self._database.write(work)

    async def unreferenced_blobs(
        self, tenant: TenantId, kb_id: KnowledgeBaseId, keys: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Those of `keys` that no version was uploaded from: left by an upload that died before it was accepted."""

        def work(connection: Connection) -> tuple[str, ...]:
            used = select(doc_versions.c.blob_key).where(
                doc_versions.c.tenant_id == tenant, doc_versions.c.kb_id == kb_id, doc_versions.c.blob_key.in_(keys)
            )
            known = set(connection.execute(used).scalars())
            return tuple(key for key in keys if key not in known)

        return await self._database.read(work)


def _note_written_average(connection: Connection, index_version: int, average_length: float) -> None:
    """The first document decides which average the index version's sparse vectors are written with."""
    if average_length > 0:
        connection.execute(
            update(index_versions)
            .where(index_versions.c.id == index_version, index_versions.c.written_average_length == 0)
            .values(written_average_length=average_length)
        )
