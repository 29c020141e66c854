"""Keeping BM25 weights true: a knowledge base whose passages have become longer or shorter is weighed anew.

BM25 normalises by the average length of the passages, which is fixed in a weight when it is written. Weights of one
index version all use the same average, and are rewritten together once the true one has moved too far.
"""

from collections.abc import AsyncIterator

from services.catalog.catalog import Catalog
from services.catalog.job_types import Job, JobKind
from services.catalog.types import Document, KnowledgeBase
from services.domain.blocks import ParseWarning
from services.domain.ids import DocVersionId, KnowledgeBaseId, TenantId
from services.index.reader import IndexReader
from services.index.types import SparseVector, StoredPassage
from services.index.writer import IndexWriter
from services.ingestor.pipeline import Progress
from services.ingestor.ports import Embedder
from services.ingestor.settings import IngestorSettings
from services.ingestor.types import schema_of


class SparseRewrite:
    """Handler of REWRITE_SPARSE jobs, and the watch that queues them. Safe to repeat."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        reader: IndexReader,
        writer: IndexWriter,
        embedder: Embedder,
        settings: IngestorSettings,
    ) -> None:
        self._catalog = catalog
        self._reader = reader
        self._writer = writer
        self._embedder = embedder
        self._settings = settings

    async def watch(self, tenant: TenantId, kb_id: KnowledgeBaseId, document_average: float) -> None:
        """Queue a rewrite when the average length has moved too far from the one that weights were computed with, or
        the document that just went live was weighed with another one (it was in work when that one was recorded)."""
        kb = await self._catalog.knowledge_bases.get(tenant, kb_id)
        written, now = kb.index.written_average_length, kb.index.average_length
        drift = max(abs(now - written), abs(document_average - written))
        if written > 0 and drift > self._settings.sparse_drift * written:
            await self._catalog.jobs.enqueue(tenant, kb_id, JobKind.REWRITE_SPARSE)

    async def rewrite(self, job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
        """Weigh all BM25 vectors of a knowledge base by its average length as it is now.

        The average is recorded first, so that documents ingested meanwhile are written with it too.
        """
        kb = await self._catalog.knowledge_bases.get(job.tenant_id, job.knowledge_base_id)
        average_length = kb.index.average_length
        if average_length <= 0:
            return ()
        await self._catalog.versions.record_sparse_rewrite(kb.index.id, average_length)
        done = 0
        async for document in self._documents(kb):
            if document.live_version is not None:
                done += await self._rewrite_version(kb, document.live_version, average_length)
                await progress.report("write", done, kb.index.chunk_count)
        return ()

    async def _documents(self, kb: KnowledgeBase) -> AsyncIterator[Document]:
        token = ""
        while True:
            page = await self._catalog.documents.list(kb.tenant_id, kb.id, page_size=500, page_token=token)
            for document in page.entries:
                yield document
            token = page.next_page_token
            if not token:
                return

    async def _rewrite_version(self, kb: KnowledgeBase, version: DocVersionId, average_length: float) -> int:
        passages = self._reader.passages(
            schema_of(kb),
            kb.id,
            index_version=kb.index.id,
            doc_version=version,
            timeout_s=self._settings.index_timeout_s,
        )
        batch: list[StoredPassage] = []
        done = 0
        async for passage in passages:
            batch.append(passage)
            if len(batch) == self._settings.embed_batch:
                done += await self._rewrite_batch(kb, version, batch, average_length)
                batch = []
        return done + await self._rewrite_batch(kb, version, batch, average_length)

    async def _rewrite_batch(
        self, kb: KnowledgeBase, version: DocVersionId, batch: list[StoredPassage], average_length: float
    ) -> int:
        if not batch:
            return 0
        embedded = await self._embedder.embed(
            [passage.embedding_text for passage in batch],
            dense_model=None,
            sparse_model=kb.sparse_model,
            average_length=average_length,
            language=kb.language,
            timeout_s=self._settings.embed_timeout_s,
        )
        vectors = {
            passage.ordinal: SparseVector(indices=sparse.indices, values=sparse.values)
            for passage, sparse in zip(batch, embedded.sparse, strict=True)
        }
        await self._writer.update_sparse(
            schema_of(kb), kb.index.id, version, vectors, timeout_s=self._settings.index_timeout_s
        )
        return len(batch)
