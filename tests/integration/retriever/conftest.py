"""The retriever as a server over a real engine process and catalogue. The models are scripted, behind real gRPC."""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from pergamon.client import AsyncClient, RetryPolicy
from pergamon.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from pergamon.reranker.v1 import reranker_pb2, reranker_pb2_grpc
from pergamon.type.v1 import model_pb2, vectors_pb2

from services.catalog.catalog import Catalog, open_catalog
from services.catalog.job_types import JobKind
from services.catalog.settings import CatalogSettings
from services.catalog.types import KnowledgeBase, KnowledgeBaseSpec, OnDuplicate, UploadSpec, VersionStats
from services.common.auth import Authenticator, Role
from services.common.clock import SystemClock
from services.common.errors import ServiceError
from services.common.metrics import Metrics
from services.common.rpc import Call, Edge, rpc
from services.common.server import App, Binding, GrpcServer
from services.common.settings import ServerSettings
from services.domain.blocks import DocumentMetadata
from services.domain.chunks import Chunk
from services.domain.ids import DocumentId, DocVersionId, TenantId
from services.embedder.bm25 import Bm25Encoder
from services.index.connection import IndexConnection
from services.index.schema import CollectionSchema
from services.index.types import IndexedDocument, PointWrite, SparseVector
from services.index.writer import IndexWriter
from services.retriever.app import RetrieverDeps, build
from services.retriever.settings import RetrieverSettings
from tests.contract.index.engine import running_engine

DIMENSIONS = 64
ACME, GLOBEX = TenantId("acme"), TenantId("globex")
KEYS = {"acme": "acme-key", "globex": "globex-key", "scoped": "scoped-key"}
_AVERAGE_LENGTH = 8.0


def dense_of(text: str) -> np.ndarray:
    """Texts that share words are near each other: the sum of a direction for each word."""
    words = text.lower().replace("?", " ").replace(".", " ").split()
    seeds = [int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") for word in words]
    total = np.sum([np.random.default_rng(seed).standard_normal(DIMENSIONS) for seed in seeds], axis=0)
    return (total / np.linalg.norm(total)).astype(np.float32)


class ScriptedModels(embedder_pb2_grpc.EmbedderServiceServicer, reranker_pb2_grpc.RerankerServiceServicer):
    """Embeds with `dense_of` and real BM25; judges by the number of shared words. Fails when told to."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.bm25 = Bm25Encoder()
        self.embed_failure: ServiceError | None = None
        self.rerank_failure: ServiceError | None = None
        self.embed_calls: list[embedder_pb2.EmbedRequest] = []

    @rpc(Role.READER)
    async def Embed(self, call: Call, request: embedder_pb2.EmbedRequest) -> embedder_pb2.EmbedResponse:
        self.embed_calls.append(request)
        if self.embed_failure is not None:
            raise self.embed_failure
        (text,) = request.texts
        sparse = self.bm25.query_vector(text, language=request.sparse.language)
        return embedder_pb2.EmbedResponse(
            dense=vectors_pb2.DenseMatrix(data=dense_of(text).tobytes(), rows=1, dimensions=DIMENSIONS)
            if request.HasField("dense")
            else None,
            sparse=vectors_pb2.SparseMatrix(
                offsets=[0, len(sparse.indices)],
                indices=sparse.indices.tobytes(),
                values=sparse.values.tobytes(),
            )
            if request.HasField("sparse")
            else None,
            reports=[embedder_pb2.EmbedReport(token_count=len(text.split()))],
        )

    @rpc(Role.READER)
    async def ListModels(self, call: Call, request: reranker_pb2.ListModelsRequest) -> reranker_pb2.ListModelsResponse:
        return reranker_pb2.ListModelsResponse(models=[model_pb2.Model(name="judge", languages=["en"])])

    @rpc(Role.READER)
    async def Rerank(self, call: Call, request: reranker_pb2.RerankRequest) -> reranker_pb2.RerankResponse:
        if self.rerank_failure is not None:
            raise self.rerank_failure
        asked = set(request.query.lower().split())
        logits = [float(len(asked & set(text.lower().split()))) - 1 for text in request.passages]
        order = sorted(range(len(logits)), key=lambda n: -logits[n])
        return reranker_pb2.RerankResponse(
            scores=[
                reranker_pb2.RerankScore(
                    index=n,
                    logit=logits[n],
                    probability=1 / (1 + np.exp(-logits[n])),
                    label=reranker_pb2.RELEVANCE_LABEL_HIGH if logits[n] > 0.5 else reranker_pb2.RELEVANCE_LABEL_LOW,
                )
                for n in order
            ]
        )


@dataclass(kw_only=True)
class Bench:
    """Everything a test needs: writes documents the way the ingestor does, and asks as clients do."""

    catalog: Catalog
    writer: IndexWriter
    models: ScriptedModels
    target: str
    schema: CollectionSchema
    clients: dict[str, AsyncClient] = field(default_factory=dict[str, AsyncClient])

    def client(self, key: str = "acme") -> AsyncClient:
        return self.clients[key]

    async def kb(self, name: str = "handbook", tenant: TenantId = ACME) -> KnowledgeBase:
        spec = KnowledgeBaseSpec(
            name=name,
            embedding_model=self.schema.model,
            sparse_model="bm25",
            collection=self.schema.collection,
            dimensions=DIMENSIONS,
            tokenizer_version=self.schema.tokenizer_version,
        )
        return await self.catalog.knowledge_bases.create(tenant, spec)

    async def put(
        self,
        kb: KnowledgeBase,
        name: str,
        *chunks: str,
        live: bool = True,
        metadata: DocumentMetadata | None = None,
    ) -> DocumentId:
        """A document with these chunks; not `live`: its points are written, and it is not searchable yet."""
        content = "\n".join(chunks)
        upload = UploadSpec(
            name=name,
            sha256=hashlib.sha256(content.encode()).hexdigest(),
            size_bytes=len(content),
            metadata=metadata or DocumentMetadata(),
            on_duplicate=OnDuplicate.ALLOW,
        )
        outcome = await self.catalog.documents.accept_upload(kb.tenant_id, kb.id, upload)
        leased = await self.catalog.jobs.lease("test", kinds=(JobKind.INGEST,), lease_s=60, limit=100)
        assert any(job.id == outcome.job_id for job in leased)
        assert await self.catalog.versions.start(outcome.version)
        document = IndexedDocument(
            kb_id=kb.id,
            index_version=kb.index.id,
            document_id=outcome.document_id,
            doc_version=DocVersionId(outcome.version),
            name=name,
            metadata=upload.metadata,
        )
        points = [self._point(ordinal, text) for ordinal, text in enumerate(chunks)]
        await self.writer.write(self.schema, document, points, timeout_s=20)
        if live:
            stats = VersionStats(
                chunk_count=len(chunks), token_count=len(content.split()), bm25_length_total=len(content.split())
            )
            assert await self.catalog.versions.activate(outcome.version, stats)
        return outcome.document_id

    def _point(self, ordinal: int, text: str) -> PointWrite:
        bm25 = self.models.bm25.passage_vector(text, average_length=_AVERAGE_LENGTH)
        chunk = Chunk(
            ordinal=ordinal,
            text=text,
            prefix="Handbook > Travel: ",
            section=("Handbook", "Travel"),
            first_page=ordinal + 1,
            last_page=ordinal + 1,
            boxes=(),
            start=0,
            end=len(text),
            word_count=len(text.split()),
            token_count=len(text.split()),
            content_hash=hashlib.sha256(" ".join(text.split()).encode()).hexdigest(),
        )
        sparse = SparseVector(indices=bm25.indices, values=bm25.values)
        return PointWrite(chunk=chunk, dense=dense_of(text), sparse=sparse)


@pytest.fixture(scope="session")
def engine_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_engine(tmp_path_factory.mktemp("engine")) as target:
        yield target


def edge_of(authenticator: Authenticator, metrics: Metrics) -> Edge:
    return Edge(authenticator=authenticator, metrics=metrics, clock=SystemClock(), default_timeout_s=20)


def key_file(folder: Path) -> Path:
    entries = [
        {"id": "a", "tenant": "acme", "role": "reader", "key": KEYS["acme"]},
        {"id": "g", "tenant": "globex", "role": "reader", "key": KEYS["globex"]},
        {"id": "s", "tenant": "acme", "role": "reader", "key": KEYS["scoped"], "scope": {"author": ["Ada"]}},
    ]
    for entry in entries:
        entry["sha256"] = hashlib.sha256(str(entry.pop("key")).encode()).hexdigest()
    path = folder / "keys.json"
    path.write_text(json.dumps(entries))
    return path


@pytest.fixture
async def bench(engine_target: str, tmp_path: Path) -> AsyncIterator[Bench]:
    settings = ServerSettings(port=0, metrics_port=0, drain_seconds=0)
    models = ScriptedModels(edge_of(Authenticator.open_to_all(), Metrics()))
    embedder_name = embedder_pb2.DESCRIPTOR.services_by_name["EmbedderService"].full_name
    reranker_name = reranker_pb2.DESCRIPTOR.services_by_name["RerankerService"].full_name
    model_app = App(
        bindings=(
            Binding(
                name=embedder_name,
                register=lambda s: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(models, s),
            ),
            Binding(
                name=reranker_name,
                register=lambda s: reranker_pb2_grpc.add_RerankerServiceServicer_to_server(models, s),
            ),
        )
    )
    model_server = GrpcServer(settings=settings, edge=models.edge, apps=[model_app])
    await model_server.start()
    once = RetryPolicy(max_attempts=1)
    index = IndexConnection(engine_target)
    metrics = Metrics()
    edge = edge_of(Authenticator.load(key_file(tmp_path)), metrics)
    async with (
        open_catalog(CatalogSettings(url=f"sqlite:///{tmp_path / 'catalog.db'}")) as catalog,
        AsyncClient(f"127.0.0.1:{model_server.port}", retry=once) as to_models,
    ):
        deps = RetrieverDeps(edge=edge, metrics=metrics, catalog=catalog, index=index, client=to_models)
        server = GrpcServer(settings=settings, edge=edge, apps=[build(RetrieverSettings(), deps)])
        await server.start()
        target = f"127.0.0.1:{server.port}"
        made = Bench(
            catalog=catalog,
            writer=IndexWriter(index),
            models=models,
            target=target,
            schema=CollectionSchema(model="scripted", dimensions=DIMENSIONS, tokenizer_version="bm25-1"),
            clients={name: AsyncClient(target, api_key=key, retry=once, timeout_s=20) for name, key in KEYS.items()},
        )
        yield made
        for client in made.clients.values():
            await client.aclose()
        await server.stop()
        await model_server.stop()
    await index.aclose()
