"""A small world to search in: knowledge bases whose chunks have the scores a test gives them, behind the retriever's
ports. It keeps the bounds that the real ones keep, and counts what is asked of it."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from services.catalog.types import (
    DisplayedDocument,
    IndexVersion,
    KnowledgeBaseType,
    RetrievalDefaults,
    SearchedKnowledgeBase,
    SearchSnapshot,
)
from services.common.clock import Deadline, FakeClock
from services.common.errors import NotFound
from services.common.metrics import Metrics
from services.domain.blocks import DocumentMetadata
from services.domain.ids import (
    DEFAULT_TENANT,
    DocumentId,
    DocVersionId,
    IndexVersionId,
    KnowledgeBaseId,
    TenantId,
    new_id,
)
from services.domain.scores import RelevanceLabel, RerankScore
from services.index.schema import CollectionSchema
from services.index.types import Hit, IndexQuery, SparseVector, StoredPassage
from services.retriever.embedding import QueryCache, QueryEmbeddings
from services.retriever.fetch import Fetching
from services.retriever.ports import RerankerCard
from services.retriever.rerank import Reranking
from services.retriever.search import Searcher, SearchParts
from services.retriever.types import EmbeddingNeed, QueryVectors, SearchCall, SearchReply, StageReport


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeChunk:
    """A point; a score that is None keeps it out of that list."""

    kb_id: KnowledgeBaseId
    stored: StoredPassage
    dense: float | None
    bm25: float | None

    @property
    def hit(self) -> Hit:
        stored = self.stored
        return Hit(
            point_id=stored.point_id,
            score=0.0,
            doc_version=stored.doc_version,
            document_id=stored.document_id,
            ordinal=stored.ordinal,
            content_hash=stored.content_hash,
        )


class FakeIndex:
    """Gives every chunk its scores, whatever the query; obeys knowledge base, hidden versions and limit."""

    def __init__(self) -> None:
        self.chunks: dict[str, FakeChunk] = {}
        self.queries: list[IndexQuery] = []
        self.fetches: list[tuple[str, ...]] = []
        self.after_query: Callable[[], None] = lambda: None
        self.failure: Exception | None = None

    async def search(self, query: IndexQuery, *, timeout_s: float) -> list[list[Hit]]:
        self.queries.append(query)
        if self.failure is not None:
            raise self.failure
        await asyncio.sleep(0)
        lists = [self._ranked(query, "dense") for _ in query.dense] + [
            self._ranked(query, "bm25") for _ in query.sparse
        ]
        self.after_query()
        return lists

    async def fetch(
        self, schema: CollectionSchema, kb_id: KnowledgeBaseId, point_ids: Sequence[str], *, timeout_s: float
    ) -> dict[str, StoredPassage]:
        self.fetches.append(tuple(point_ids))
        found = [self.chunks[key] for key in point_ids if key in self.chunks]
        return {chunk.stored.point_id: chunk.stored for chunk in found if chunk.kb_id == kb_id}

    def _ranked(self, query: IndexQuery, which: str) -> list[Hit]:
        scored = [
            chunk.hit._replace(score=score)
            for chunk in self.chunks.values()
            if chunk.kb_id == query.kb_id
            and chunk.stored.doc_version not in query.hidden_doc_versions
            and (score := getattr(chunk, which)) is not None
        ]
        return sorted(scored, key=lambda hit: -hit.score)[: query.limit]


class FakeCatalog:
    """Snapshots and documents of one tenant."""

    def __init__(self) -> None:
        self.bases: dict[KnowledgeBaseId, SearchedKnowledgeBase] = {}
        self.documents: dict[DocVersionId, DisplayedDocument] = {}
        self.snapshots = 0
        self.before_snapshot: asyncio.Event | None = None

    async def search_snapshot(self, tenant: TenantId, kb_ids: Sequence[KnowledgeBaseId]) -> SearchSnapshot:
        self.snapshots += 1
        await asyncio.sleep(0)
        if self.before_snapshot is not None:
            await self.before_snapshot.wait()
        for kb_id in kb_ids:
            if kb_id not in self.bases or tenant != DEFAULT_TENANT:
                raise NotFound.knowledge_base(kb_id)
        return SearchSnapshot(knowledge_bases=tuple(self.bases[kb_id] for kb_id in kb_ids))

    async def documents_by_version(
        self, tenant: TenantId, versions: Sequence[DocVersionId]
    ) -> dict[DocVersionId, DisplayedDocument]:
        return {version: self.documents[version] for version in versions if version in self.documents}


class FakeEmbedder:
    def __init__(self) -> None:
        self.calls: list[tuple[str, EmbeddingNeed]] = []
        self.failures: dict[EmbeddingNeed | None, Exception] = {}
        self.truncated = False
        self.called = asyncio.Event()
        self.words = True

    async def embed(self, query: str, need: EmbeddingNeed, *, timeout_s: float) -> QueryVectors:
        self.calls.append((query, need))
        self.called.set()
        await asyncio.sleep(0)
        failure = self.failures.get(need) or self.failures.get(None)
        if failure is not None:
            raise failure
        terms = 1 if self.words else 0
        sparse = SparseVector(indices=np.ones(terms, np.uint32), values=np.ones(terms, np.float32))
        return QueryVectors(
            dense=np.ones(4, np.float32) if need.dense_model else None,
            sparse=sparse if need.sparse_model else None,
            truncated=self.truncated,
        )


@dataclass
class FakeReranker:
    """Scores by the text; a text without an entry has the logit `other`."""

    logits: dict[str, float | None] = field(default_factory=dict[str, float | None])
    other: float = -5.0
    languages: tuple[str, ...] = ()
    failure: Exception | None = None
    hangs: bool = False
    calls: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    models: list[str] = field(default_factory=list[str])

    async def card(self, model: str, *, timeout_s: float) -> RerankerCard:
        return RerankerCard(name=model or "judge", languages=self.languages)

    async def rerank(
        self, query: str, texts: Sequence[str], *, model: str, timeout_s: float
    ) -> list[RerankScore | None]:
        self.calls.append(tuple(texts))
        self.models.append(model)
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return [_score(self.logits.get(text, self.other)) for text in texts]


@dataclass
class FakeLanguages:
    language: str = ""

    async def detect(self, text: str) -> str:
        return self.language


def _score(logit: float | None) -> RerankScore | None:
    if logit is None:
        return None
    label = RelevanceLabel.HIGH if logit > 0.5 else RelevanceLabel.MEDIUM if logit > -1 else RelevanceLabel.LOW
    return RerankScore(logit=logit, probability=float(1 / (1 + np.exp(-logit))), label=label)


class World:
    """The fakes, and a searcher over them."""

    def __init__(self, *, max_searches: int = 8, rerank_timeout_s: float = 5.0, cache_size: int = 16) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.index, self.catalog, self.embedder = FakeIndex(), FakeCatalog(), FakeEmbedder()
        self.reranker, self.languages = FakeReranker(), FakeLanguages()
        self.cache = QueryCache(size=cache_size, keep_s=300.0, clock=self.clock)
        parts = SearchParts(
            snapshots=self.catalog,
            index=self.index,
            embeddings=QueryEmbeddings(self.embedder, self.cache, self.metrics, timeout_s=5.0),
            fetching=Fetching(self.index, self.catalog, timeout_s=5.0),
            reranking=Reranking(self.reranker, self.languages, self.clock, timeout_s=rerank_timeout_s, reserve_s=0.05),
            clock=self.clock,
            metrics=self.metrics,
        )
        self.searcher = Searcher(parts, max_searches=max_searches, index_timeout_s=5.0)
        self._versions = 0

    def kb(
        self,
        name: str = "handbook",
        *,
        model: str = "e5",
        language: str = "",
        retrieval: RetrievalDefaults | None = None,
        chunks: int = 1_000,
    ) -> KnowledgeBaseId:
        kb_id = KnowledgeBaseId(new_id("kb"))
        index = IndexVersion(
            id=IndexVersionId(len(self.catalog.bases) + 1),
            knowledge_base_id=kb_id,
            collection=model,
            dimensions=4,
            tokenizer_version="1",
            chunk_count=chunks,
        )
        self.catalog.bases[kb_id] = SearchedKnowledgeBase(
            id=kb_id,
            name=name,
            type=KnowledgeBaseType.VECTOR,
            retrieval=retrieval or RetrievalDefaults(),
            embedding_model=model,
            sparse_model="bm25",
            language=language,
            index=index,
            hidden_doc_versions=(),
        )
        return kb_id

    def change(self, kb_id: KnowledgeBaseId, **changes: Any) -> None:
        self.catalog.bases[kb_id] = replace(self.catalog.bases[kb_id], **changes)

    def chunk(
        self,
        kb_id: KnowledgeBaseId,
        text: str,
        *,
        dense: float | None = None,
        bm25: float | None = None,
        document: str = "",
        shown: bool = True,
    ) -> FakeChunk:
        """A chunk in a new version of `document` (named by its text where not given)."""
        self._versions += 1
        version = DocVersionId(self._versions)
        document_id = DocumentId(f"doc_{document or text}")
        stored = stored_passage(
            text, kb_id=kb_id, document_id=document_id, doc_version=version, point_id=f"p{self._versions:04}"
        )
        chunk = FakeChunk(kb_id=kb_id, stored=stored, dense=dense, bm25=bm25)
        self.index.chunks[stored.point_id] = chunk
        if shown:
            self.catalog.documents[version] = displayed(document_id, kb_id)
        return chunk

    def forget(self, chunk: FakeChunk) -> None:
        """The chunk's document is deleted: not shown any more, though its point may still be there."""
        del self.catalog.documents[chunk.stored.doc_version]

    def call(self, *kb_ids: KnowledgeBaseId, **changes: Any) -> SearchCall:
        return SearchCall(
            **{"tenant_id": DEFAULT_TENANT, "query": "who pays?", "knowledge_base_ids": kb_ids, **changes}
        )

    def deadline(self, seconds: float = 10.0) -> Deadline:
        return Deadline.after(seconds, self.clock)

    async def search(self, *kb_ids: KnowledgeBaseId, within_s: float = 10.0, **changes: Any) -> SearchReply:
        return await self.searcher.search(self.call(*kb_ids, **changes), self.deadline(within_s))


def stored_passage(text: str, **changes: Any) -> StoredPassage:
    given: dict[str, Any] = {
        "point_id": "p1",
        "kb_id": KnowledgeBaseId("kb_1"),
        "index_version": IndexVersionId(1),
        "document_id": DocumentId("doc_1"),
        "doc_version": DocVersionId(1),
        "ordinal": 0,
        "text": text,
        "prefix": "",
        "section": ("Travel",),
        "first_page": 4,
        "last_page": 4,
        "boxes": (),
        "start": 0,
        "end": len(text),
        "word_count": len(text.split()),
        "token_count": len(text.split()),
        "content_hash": hashlib.sha256(text.encode()).hexdigest(),
        **changes,
    }
    return StoredPassage(**given)


def displayed(
    document_id: DocumentId, kb_id: KnowledgeBaseId, name: str = "policy.pdf", **metadata: Any
) -> DisplayedDocument:
    return DisplayedDocument(
        document_id=document_id,
        knowledge_base_id=kb_id,
        name=name,
        kind=None,
        page_count=9,
        metadata=DocumentMetadata(**metadata),
        updated_time=datetime(2026, 1, 1, tzinfo=UTC),
    )


def texts(reply: SearchReply) -> list[str]:
    return [passage.stored.text for passage in reply.passages]


def stage(reply: SearchReply, name: str) -> StageReport:
    return next(report for report in reply.stages if report.stage == name)
