"""Jobs that follow an ingestion: removing what nobody sees any more, and new metadata of documents."""

from services.catalog.blobs import BlobStore
from services.catalog.catalog import Catalog
from services.catalog.job_types import Job
from services.common.errors import NotFound
from services.domain.blocks import ParseWarning
from services.index.types import IndexedDocument
from services.index.writer import IndexWriter
from services.ingestor.blob_keys import knowledge_base_prefix, version_prefix
from services.ingestor.pipeline import Progress
from services.ingestor.settings import IngestorSettings
from services.ingestor.types import required_version, schema_of

Warnings = tuple[ParseWarning, ...]


class Cleanup:
    """Handlers of RETIRE, PURGE and UPDATE_METADATA jobs. Each is safe to repeat."""

    def __init__(self, *, catalog: Catalog, blobs: BlobStore, index: IndexWriter, settings: IngestorSettings) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._index = index
        self._timeout_s = settings.index_timeout_s

    async def retire(self, job: Job, progress: Progress) -> Warnings:
        """Remove the points and blobs of a version that ended."""
        version_id = required_version(job)
        try:
            version = await self._catalog.versions.get(job.tenant_id, version_id)
        except NotFound:  # an attempt before this one did it, and died before it could say so
            return ()
        kb = await self._catalog.knowledge_bases.get(job.tenant_id, job.knowledge_base_id)
        await self._index.delete_versions(schema_of(kb), kb.id, (version_id,), timeout_s=self._timeout_s)
        await self._blobs.delete_prefix(version_prefix(version.tenant_id, kb.id, version_id))
        if version.blob_key:
            await self._blobs.delete_prefix(version.blob_key)
        await self._catalog.versions.retire_done(version_id)
        return ()

    async def purge(self, job: Job, progress: Progress) -> Warnings:
        """Remove every point and blob of a deleted knowledge base, then its rows."""
        kb = await self._catalog.knowledge_bases.get_deleted(job.knowledge_base_id)
        if kb is None:
            return ()
        await self._index.delete_knowledge_base(schema_of(kb), kb.id, timeout_s=self._timeout_s)
        await self._blobs.delete_prefix(knowledge_base_prefix(job.tenant_id, kb.id))
        await self._catalog.knowledge_bases.purge_done(kb.id)
        return ()

    async def update_metadata(self, job: Job, progress: Progress) -> Warnings:
        """Bring the metadata of a document, as it is now, into its points; vectors stay."""
        if job.document_id is None:
            return ()
        document = await self._catalog.documents.get(job.tenant_id, job.document_id)
        if document.live_version is None:
            return ()
        kb = await self._catalog.knowledge_bases.get(job.tenant_id, job.knowledge_base_id)
        version = await self._catalog.versions.get(job.tenant_id, document.live_version)
        indexed = IndexedDocument(
            kb_id=kb.id,
            index_version=version.index_version,
            document_id=document.id,
            doc_version=version.id,
            name=document.name,
            metadata=document.metadata,
            page_count=document.page_count or None,
        )
        await self._index.set_metadata(schema_of(kb), indexed, timeout_s=self._timeout_s)
        return ()
