"""The query's vectors: kept for a while, asked for before the plan is certain, and BM25 alone when the model fails."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from services.common.clock import Clock, Deadline
from services.common.errors import DeadlineExceeded, Reason, ServiceError, Unavailable
from services.common.metrics import Metrics
from services.retriever.concurrent import all_of, settle
from services.retriever.ports import QueryEmbedder
from services.retriever.types import EmbeddingNeed, QueryVectors

#: Failures of the dense model alone: BM25 needs no device, so a second call without the model can still succeed.
_DENSE_FAILED = frozenset(
    {
        Reason.MODEL_NOT_AVAILABLE,
        Reason.MODEL_NOT_LOADED,
        Reason.MODEL_LIMIT,
        Reason.MODEL_INVALID,
        Reason.INFERENCE_FAILED,
        Reason.OVERLOADED,
        Reason.DEADLINE_UNREACHABLE,
    }
)


class QueryCache:
    """Vectors of recent queries. Bounded in number and age: a model may be exchanged under its name."""

    def __init__(self, *, size: int, keep_s: float, clock: Clock) -> None:
        self._size = size
        self._keep_s = keep_s
        self._clock = clock
        self._entries: OrderedDict[tuple[str, EmbeddingNeed], tuple[float, QueryVectors]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, query: str, need: EmbeddingNeed) -> QueryVectors | None:
        entry = self._entries.get((query, need))
        if entry is None or entry[0] <= self._clock.monotonic():
            return None
        self._entries.move_to_end((query, need))
        return entry[1]

    def put(self, query: str, need: EmbeddingNeed, vectors: QueryVectors) -> None:
        if self._size == 0:
            return
        self._entries[query, need] = (self._clock.monotonic() + self._keep_s, vectors)
        self._entries.move_to_end((query, need))
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)


class QueryEmbeddings:
    """Vectors for a query and a need."""

    def __init__(self, embedder: QueryEmbedder, cache: QueryCache, metrics: Metrics, *, timeout_s: float) -> None:
        self._embedder = embedder
        self._cache = cache
        self._metrics = metrics
        self._timeout_s = timeout_s

    async def vectors(self, query: str, need: EmbeddingNeed, deadline: Deadline) -> QueryVectors:
        """Errors: those of `QueryEmbedder`. A hybrid need whose dense model fails gets BM25 alone, and says so."""
        kept = self._cache.get(query, need)
        self._metrics.query_cache.labels("miss" if kept is None else "hit").inc()
        if kept is not None:
            return kept
        try:
            vectors = await self._embed(query, need, deadline)
        except ServiceError as error:
            if need.dense_model is None or need.sparse_model is None or error.error_reason not in _DENSE_FAILED:
                raise
            vectors = await self._embed(query, need._replace(dense_model=None), deadline)
            return replace(vectors, degraded=error.error_reason.name)
        self._cache.put(query, need, vectors)
        return vectors

    async def _embed(self, query: str, need: EmbeddingNeed, deadline: Deadline) -> QueryVectors:
        if deadline.expired:
            raise DeadlineExceeded("the deadline passed before the query was embedded")
        timeout_s = deadline.capped(self._timeout_s)
        try:
            return await self._embedder.embed(query, need, timeout_s=timeout_s)
        except DeadlineExceeded as error:
            if timeout_s < self._timeout_s:  # the caller's own deadline
                raise
            message = f"the embedder did not answer within {self._timeout_s:g} s"
            raise Unavailable(message, reason=Reason.EMBEDDER_UNAVAILABLE, retry_after_s=1.0) from error


class EmbeddingRun:
    """The embedding of one search: begun on a guess, completed when the plan is known, ended in any case."""

    def __init__(self, embeddings: QueryEmbeddings, query: str, deadline: Deadline) -> None:
        self._embeddings = embeddings
        self._query = query
        self._deadline = deadline
        self._tasks: dict[EmbeddingNeed, asyncio.Task[QueryVectors]] = {}

    async def begin(self, needs: Iterable[EmbeddingNeed]) -> None:
        """Start what may be needed, and do not wait for it; the calls are on their way when this returns."""
        for need in needs:
            work = self._embeddings.vectors(self._query, need, self._deadline)
            self._tasks[need] = asyncio.create_task(work)
        if self._tasks:
            await asyncio.sleep(0)

    async def vectors(self, needs: Iterable[EmbeddingNeed]) -> Mapping[EmbeddingNeed, QueryVectors]:
        """What is needed, whether it was guessed or not."""
        wanted = list(needs)
        found = await all_of([self._one(need) for need in wanted])
        return dict(zip(wanted, found, strict=True))

    async def aclose(self) -> None:
        if self._tasks:
            await settle(list(self._tasks.values()))

    async def _one(self, need: EmbeddingNeed) -> QueryVectors:
        begun = self._tasks.get(need)
        return await (begun if begun is not None else self._embeddings.vectors(self._query, need, self._deadline))
