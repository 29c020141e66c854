"""The retriever put together: one place where its parts meet, used by every way to run it."""

from dataclasses import dataclass

from pergamon.client import AsyncClient, RetryPolicy, Targets
from pergamon.retriever.v1 import retriever_pb2_grpc

from services.catalog.catalog import Catalog
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import App, Binding
from services.common.turns import turn
from services.index.connection import IndexConnection
from services.index.reader import IndexReader
from services.retriever.client_embedder import ClientEmbedder
from services.retriever.client_reranker import ClientReranker
from services.retriever.embedding import QueryCache, QueryEmbeddings
from services.retriever.fetch import Fetching
from services.retriever.language import LinguaDetector
from services.retriever.rerank import Reranking
from services.retriever.search import Searcher, SearchParts
from services.retriever.servicer import SERVICE, RetrieverServicer
from services.retriever.settings import RetrieverSettings

#: A search waits for its dependencies, so one that is down or full is tried once more and then reported.
RETRY = RetryPolicy(max_attempts=2, initial_backoff_s=0.1)

#: Less than the server waits for an answer about health.
_READY_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieverDeps:
    """What the retriever is given; whoever made these closes them. `client` reaches embedder and reranker."""

    edge: Edge
    metrics: Metrics
    catalog: Catalog
    index: IndexConnection
    client: AsyncClient


def build(settings: RetrieverSettings, deps: RetrieverDeps) -> App:
    clock, metrics = deps.edge.clock, deps.metrics
    reader = IndexReader(deps.index)
    cache = QueryCache(size=settings.query_cache_size, keep_s=settings.query_cache_s, clock=clock)
    parts = SearchParts(
        snapshots=deps.catalog.snapshots,
        index=reader,
        embeddings=QueryEmbeddings(ClientEmbedder(deps.client), cache, metrics, timeout_s=settings.embed_timeout_s),
        fetching=Fetching(reader, deps.catalog.documents, timeout_s=settings.index_timeout_s),
        reranking=Reranking(
            ClientReranker(deps.client),
            LinguaDetector(),
            clock,
            timeout_s=settings.rerank_timeout_s,
            reserve_s=settings.reserve_ms / 1000,
        ),
        clock=clock,
        metrics=metrics,
    )
    searcher = Searcher(parts, max_searches=settings.max_searches, index_timeout_s=settings.index_timeout_s)
    servicer = RetrieverServicer(deps.edge, searcher)

    async def ready() -> bool:
        """A search needs both; the embedder's absence it can partly do without, and says so itself."""
        return await deps.catalog.answers() and await deps.index.answers(timeout_s=_READY_TIMEOUT_S)

    binding = Binding(
        name=SERVICE,
        ready=ready,
        register=lambda server: retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(servicer, server),
    )
    return App(bindings=(binding,))


def client_of(settings: RetrieverSettings, token: str) -> AsyncClient:
    """A client for the embedder and the reranker of the settings; `token` is the deployment's, empty for none."""
    targets = Targets(embedder=settings.embedder_target, reranker=settings.reranker_target)
    return AsyncClient(settings.embedder_target, targets=targets, api_key=token or None, retry=RETRY, on_behalf_of=turn)
