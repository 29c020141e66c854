"""What a search needs of others, as it wants to see it; `app` adapts the client, index and catalogue to these."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.catalog.types import DisplayedDocument, SearchSnapshot
from services.domain.ids import DocVersionId, KnowledgeBaseId, TenantId
from services.domain.scores import RerankScore
from services.index.schema import CollectionSchema
from services.index.types import Hit, IndexQuery, StoredPassage
from services.retriever.types import EmbeddingNeed, QueryVectors


class QueryEmbedder(Protocol):
    async def embed(self, query: str, need: EmbeddingNeed, *, timeout_s: float) -> QueryVectors:
        """Dense and sparse vector in one call; a query longer than the model's input is cut, and `truncated` says so.

        Errors: EMBEDDER_UNAVAILABLE, OVERLOADED, DEADLINE_EXCEEDED, and the model's own (MODEL_NOT_FOUND ...).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerCard:
    """`languages` are ISO 639-1 codes the model is made for; empty: it claims none and all."""

    name: str
    languages: tuple[str, ...] = ()


class RerankFailed(Exception):
    """There are no scores, for a short `reason`: one of docs/api.md, or a few words. The search goes on without."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Reranker(Protocol):
    """Errors: RerankFailed and nothing else."""

    async def card(self, model: str, *, timeout_s: float) -> RerankerCard:
        """The model called `model`; empty: the default."""
        ...

    async def rerank(
        self, query: str, texts: Sequence[str], *, model: str, timeout_s: float
    ) -> list[RerankScore | None]:
        """A score for each text, in their order; None where the model has none."""
        ...


class IndexPort(Protocol):
    """Errors: INDEX_UNAVAILABLE, INVALID_FILTER, DIMENSION_MISMATCH."""

    async def search(self, query: IndexQuery, *, timeout_s: float) -> list[list[Hit]]: ...

    async def fetch(
        self, schema: CollectionSchema, kb_id: KnowledgeBaseId, point_ids: Sequence[str], *, timeout_s: float
    ) -> dict[str, StoredPassage]: ...


class SnapshotPort(Protocol):
    """Errors: KNOWLEDGE_BASE_NOT_FOUND, CATALOG_UNAVAILABLE."""

    async def search_snapshot(self, tenant: TenantId, kb_ids: Sequence[KnowledgeBaseId]) -> SearchSnapshot: ...


class DocumentPort(Protocol):
    """Errors: CATALOG_UNAVAILABLE."""

    async def documents_by_version(
        self, tenant: TenantId, versions: Sequence[DocVersionId]
    ) -> dict[DocVersionId, DisplayedDocument]: ...
