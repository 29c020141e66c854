"""One document on one page: read, parse, chunk, embed, write, switch.

Every step can be killed and is repeated without a trace: parts and points have ids that follow from their place,
the checkpoint says where to go on, and nothing is visible before the switch, which is one catalogue transaction.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from services.catalog.blobs import BlobStore, read_blob
from services.catalog.catalog import Catalog
from services.catalog.job_types import Job
from services.catalog.types import VersionState, VersionStats
from services.common.errors import DocumentError, NotFound, Reason
from services.common.metrics import Metrics
from services.domain.blocks import DocumentKind, DocumentMetadata
from services.domain.chunks import Chunk
from services.index.types import IndexedDocument
from services.index.writer import IndexWriter
from services.ingestor.blob_keys import MAX_PART_BYTES, part_key, version_prefix
from services.ingestor.checkpoint import Checkpoint
from services.ingestor.embedding import ChunkEmbedder
from services.ingestor.parsing import ParseOptions, merge_metadata
from services.ingestor.ports import Embedder
from services.ingestor.settings import IngestorSettings
from services.ingestor.tasks import ChunkOptions, chunk_parts, parse_stretch
from services.ingestor.types import Task, required_version
from services.ingestor.workers import WorkerPool


class Progress:
    """What a running ingestion tells its job: the stage it is in, how far it is, and where to go on."""

    def __init__(
        self,
        report: Callable[[str, int, int], Awaitable[None]],
        save: Callable[[Checkpoint], Awaitable[None]],
    ) -> None:
        self.report = report
        self.save = save


class Pipeline:
    def __init__(
        self,
        *,
        catalog: Catalog,
        blobs: BlobStore,
        index: IndexWriter,
        embedder: Embedder,
        workers: WorkerPool,
        settings: IngestorSettings,
        metrics: Metrics,
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._index = index
        self._embedder = embedder
        self._workers = workers
        self._settings = settings
        self._metrics = metrics

    async def run(self, job: Job, progress: Progress) -> tuple[Checkpoint, bool]:
        """Make the version of `job` live. Returns what was found on the way, and whether it is live.

        A version that was superseded or deleted meanwhile is not, and that is no error. Raises DocumentError when the
        document cannot be read.
        """
        checkpoint = Checkpoint.from_json(job.checkpoint)
        task = await self._read(job)
        if task is None:
            return checkpoint, False
        if task.begun and not checkpoint.parts:  # parts of an attempt that read more would be shown after these
            await self._blobs.delete_prefix(version_prefix(job.tenant_id, task.kb.id, task.version.id))
        with self._timed("parse"):
            checkpoint = await self._parse(task, checkpoint, progress)
        with self._timed("chunk"):
            chunks, metadata = await self._chunk(task, checkpoint, progress)
        if task.begun and checkpoint.chunks != cut_digest(chunks):
            # Points of another cut may be there, though no checkpoint tells: they would outlive this one.
            doomed = (task.version.id,)
            await self._index.delete_versions(task.schema, task.kb.id, doomed, timeout_s=self._settings.index_timeout_s)
        with self._timed("write"):
            checkpoint = await self._embed_and_write(task, chunks, metadata, checkpoint, progress)
        with self._timed("switch"):
            live = await self._switch(task, chunks, checkpoint)
        return checkpoint, live

    @contextmanager
    def _timed(self, stage: str) -> Generator[None]:
        """Measures a stage that comes to its end; one that fails says nothing about how long it takes."""
        started = time.monotonic()
        yield
        self._metrics.ingest_stage_seconds.labels(stage).observe(time.monotonic() - started)

    async def _read(self, job: Job) -> Task | None:
        version = required_version(job)
        try:
            found = await self._catalog.versions.get(job.tenant_id, version)
        except NotFound:  # deleted, and cleaned up already
            return None
        if not await self._catalog.versions.start(version):
            return None
        return Task(
            version=found,
            begun=found.state is VersionState.RUNNING,
            document=await self._catalog.documents.get(job.tenant_id, found.document_id),
            kb=await self._catalog.knowledge_bases.get(job.tenant_id, job.knowledge_base_id),
        )

    async def _parse(self, task: Task, checkpoint: Checkpoint, progress: Progress) -> Checkpoint:
        """Stretch by stretch into blobs, so that memory is bounded and a killed worker loses one stretch."""
        if checkpoint.next_page is None:
            return checkpoint
        options = ParseOptions(filename=task.document.name)
        async with self._blobs.local_path(task.version.blob_key) as path:
            while checkpoint.next_page is not None:
                stretch = await self._workers.run(
                    parse_stretch, path, options, checkpoint.next_page, timeout_s=self._settings.parse_timeout_s
                )
                await self._blobs.put(part_key(task.version, checkpoint.parts), stretch.content)
                checkpoint = replace(
                    checkpoint.warned(stretch.warnings),
                    next_page=stretch.next_page,
                    parts=checkpoint.parts + 1,
                    kind=stretch.kind,
                    page_count=stretch.page_count,
                    metadata=stretch.metadata,
                    text_chars=checkpoint.text_chars + stretch.text_chars,
                )
                if checkpoint.text_chars > self._settings.max_document_chars:
                    raise DocumentError(
                        f"the document holds more than {self._settings.max_document_chars} characters",
                        reason=Reason.DOCUMENT_LIMIT,
                    )
                if checkpoint.next_page is not None:  # a short document is sooner read again than saved
                    await progress.save(checkpoint)
                await progress.report("parse", stretch.pages_done, max(1, stretch.page_count))
        if checkpoint.text_chars == 0:
            raise DocumentError("the document holds no extractable text", reason=Reason.NO_TEXT)
        return checkpoint

    async def _chunk(
        self, task: Task, checkpoint: Checkpoint, progress: Progress
    ) -> tuple[tuple[Chunk, ...], DocumentMetadata]:
        metadata = merge_metadata(extracted=checkpoint.metadata, given=task.version.caller_metadata)
        model = await self._embedder.dense_model(task.kb.embedding_model)
        options = ChunkOptions(
            kind=checkpoint.kind or DocumentKind.TEXT,
            title=metadata.title,
            name=task.document.name,
            chunking=task.kb.chunking,
            tokenizer_path=str(await self._embedder.tokenizer_file(model.tokenizer_sha256)),
            max_tokens=model.max_tokens,
            passage_overhead_tokens=model.passage_overhead_tokens,
        )
        parts = [
            await read_blob(self._blobs, part_key(task.version, number), max_bytes=MAX_PART_BYTES)
            for number in range(checkpoint.parts)
        ]
        timeout_s = self._settings.parse_timeout_s + checkpoint.text_chars / 50_000
        chunks = await self._workers.run(chunk_parts, parts, options, timeout_s=timeout_s)
        if not chunks:
            raise DocumentError("the document holds no extractable text", reason=Reason.NO_TEXT)
        await progress.report("chunk", len(chunks), len(chunks))
        return chunks, metadata

    async def _embed_and_write(
        self,
        task: Task,
        chunks: tuple[Chunk, ...],
        metadata: DocumentMetadata,
        checkpoint: Checkpoint,
        progress: Progress,
    ) -> Checkpoint:
        """Batch by batch: vectors of unchanged chunks come from the index, the others from the embedder."""
        timeout_s = self._settings.index_timeout_s
        digest = cut_digest(chunks)
        if checkpoint.chunks != digest:
            checkpoint = replace(checkpoint, chunks=digest, written=0, bm25_length=0, average_length=0.0)
        embedding = ChunkEmbedder(self._embedder, self._index, task, self._settings)
        average_length = checkpoint.average_length or await embedding.average_length(chunks)
        checkpoint = replace(checkpoint, average_length=average_length)
        indexed = IndexedDocument(
            kb_id=task.kb.id,
            index_version=task.version.index_version,
            document_id=task.document.id,
            doc_version=task.version.id,
            name=task.document.name,
            metadata=metadata,
            page_count=checkpoint.page_count or None,
        )
        while checkpoint.written < len(chunks):
            batch = chunks[checkpoint.written : checkpoint.written + self._settings.embed_batch]
            points, length = await embedding.points(batch, average_length)
            await self._index.write(task.schema, indexed, points, timeout_s=timeout_s)
            checkpoint = replace(
                checkpoint, written=checkpoint.written + len(batch), bm25_length=checkpoint.bm25_length + length
            )
            if checkpoint.written < len(chunks):
                await progress.save(checkpoint)
            await progress.report("write", checkpoint.written, len(chunks))
        return checkpoint

    async def _switch(self, task: Task, chunks: tuple[Chunk, ...], checkpoint: Checkpoint) -> bool:
        return await self._catalog.versions.activate(
            task.version.id,
            VersionStats(
                chunk_count=len(chunks),
                token_count=sum(chunk.token_count for chunk in chunks),
                bm25_length_total=checkpoint.bm25_length,
                page_count=checkpoint.page_count,
                metadata=checkpoint.metadata,
                warnings=checkpoint.warnings,
                kind=checkpoint.kind,
                written_average_length=checkpoint.average_length,
            ),
        )


def cut_digest(chunks: tuple[Chunk, ...]) -> str:
    """Tells two ways to cut a document apart: hash over the embedding texts, in order."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk.embedding_text.encode())
        digest.update(b"\x00")
    return digest.hexdigest()[:32]
