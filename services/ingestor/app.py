"""The ingestor put together: one place where its parts meet, used by every way to run it."""

from dataclasses import dataclass

from pergamon.client import AsyncClient, Targets
from pergamon.ingestor.v1 import document_pb2_grpc, job_pb2_grpc, knowledge_base_pb2_grpc

from services.catalog.blobs import BlobStore
from services.catalog.catalog import Catalog
from services.catalog.job_types import Job, JobKind
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import App, Binding
from services.common.turns import turn
from services.domain.blocks import ParseWarning
from services.index.connection import IndexConnection
from services.index.reader import IndexReader
from services.index.writer import IndexWriter
from services.ingestor.cleanup import Cleanup
from services.ingestor.client_embedder import ClientEmbedder
from services.ingestor.documents import Documents
from services.ingestor.housekeeping import Housekeeping
from services.ingestor.inspection import ContentInspector
from services.ingestor.knowledge_bases import KnowledgeBases
from services.ingestor.pipeline import Pipeline, Progress
from services.ingestor.runner import Handler, JobRunner
from services.ingestor.servicers import documents as document_service
from services.ingestor.servicers import jobs as job_service
from services.ingestor.servicers import knowledge_bases as knowledge_base_service
from services.ingestor.settings import IngestorSettings
from services.ingestor.sparse_rewrite import SparseRewrite
from services.ingestor.uploads import Uploads
from services.ingestor.workers import WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestorDeps:
    """What the ingestor is given; whoever made these closes them."""

    edge: Edge
    metrics: Metrics
    catalog: Catalog
    blobs: BlobStore
    index: IndexConnection
    client: AsyncClient


def build(settings: IngestorSettings, deps: IngestorDeps) -> App:
    embedder = ClientEmbedder(deps.client, settings.data_dir / "tokenizers")
    workers = WorkerPool(
        workers=settings.parse_workers,
        memory_mib=settings.parse_memory_mib,
    )
    # Its own process: an upload is answered though every other one parses a long document.
    inspection = WorkerPool(workers=1, memory_mib=settings.parse_memory_mib)
    reader, writer = IndexReader(deps.index), IndexWriter(deps.index)
    pipeline = Pipeline(
        catalog=deps.catalog,
        blobs=deps.blobs,
        index=writer,
        embedder=embedder,
        workers=workers,
        settings=settings,
        metrics=deps.metrics,
    )
    rewrite = SparseRewrite(catalog=deps.catalog, reader=reader, writer=writer, embedder=embedder, settings=settings)
    cleanup = Cleanup(catalog=deps.catalog, blobs=deps.blobs, index=writer, settings=settings)
    handlers: dict[JobKind, Handler] = {
        JobKind.INGEST: _ingest(pipeline, rewrite, deps.metrics),
        JobKind.RETIRE: cleanup.retire,
        JobKind.PURGE: cleanup.purge,
        JobKind.UPDATE_METADATA: cleanup.update_metadata,
        JobKind.REWRITE_SPARSE: rewrite.rewrite,
    }
    runner = JobRunner(
        catalog=deps.catalog,
        handlers=handlers,
        metrics=deps.metrics,
        concurrent_jobs=settings.concurrent_jobs,
        lease_s=settings.lease_s,
        poll_interval_s=settings.poll_interval_s,
    )
    knowledge_bases = KnowledgeBases(catalog=deps.catalog, embedder=embedder, runner=runner)
    uploads = Uploads(
        documents=deps.catalog.documents,
        knowledge_bases=knowledge_bases,
        blobs=deps.blobs,
        inspector=ContentInspector(inspection, settings.parse_timeout_s),
        runner=runner,
        scratch=settings.data_dir / "scratch",
        max_bytes=settings.max_upload_mib << 20,
    )
    documents = Documents(catalog=deps.catalog, blobs=deps.blobs, runner=runner)

    housekeeping = Housekeeping(
        catalog=deps.catalog, blobs=deps.blobs, index=writer, clock=deps.edge.clock, settings=settings
    )

    async def start() -> None:
        await runner.start()
        await housekeeping.start()

    async def aclose() -> None:
        await housekeeping.aclose()
        await runner.aclose()
        await workers.aclose()
        await inspection.aclose()

    return App(
        bindings=_bindings(deps, knowledge_bases, documents, uploads),
        start=start,
        aclose=aclose,
    )


def _bindings(
    deps: IngestorDeps, knowledge_bases: KnowledgeBases, documents: Documents, uploads: Uploads
) -> tuple[Binding, ...]:
    kb_servicer = knowledge_base_service.KnowledgeBaseServicer(deps.edge, knowledge_bases)
    document_servicer = document_service.DocumentServicer(deps.edge, documents, uploads)
    job_servicer = job_service.JobServicer(deps.edge, deps.catalog)
    # Without the index or the embedder uploads are still accepted, and their jobs wait.
    ready = deps.catalog.answers
    return (
        Binding(
            name=knowledge_base_service.SERVICE,
            ready=ready,
            register=lambda s: knowledge_base_pb2_grpc.add_KnowledgeBaseServiceServicer_to_server(kb_servicer, s),
        ),
        Binding(
            name=document_service.SERVICE,
            ready=ready,
            register=lambda s: document_pb2_grpc.add_DocumentServiceServicer_to_server(document_servicer, s),
        ),
        Binding(
            name=job_service.SERVICE,
            ready=ready,
            register=lambda s: job_pb2_grpc.add_JobServiceServicer_to_server(job_servicer, s),
        ),
    )


def _ingest(pipeline: Pipeline, rewrite: SparseRewrite, metrics: Metrics) -> Handler:
    async def handle(job: Job, progress: Progress) -> tuple[ParseWarning, ...]:
        checkpoint, live = await pipeline.run(job, progress)
        if live:
            metrics.chunks_indexed.inc(checkpoint.written)
            await rewrite.watch(job.tenant_id, job.knowledge_base_id, checkpoint.average_length)
        return checkpoint.warnings

    return handle


def client_of(settings: IngestorSettings, token: str) -> AsyncClient:
    """A client for the embedder of the settings; `token` is the deployment's, empty for none."""
    targets = Targets(embedder=settings.embedder_target)
    return AsyncClient(settings.embedder_target, targets=targets, api_key=token or None, on_behalf_of=turn)
