"""What goes into the index and what comes out of it."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import UUID, uuid5

import numpy as np
from numpy.typing import NDArray

from services.domain.blocks import BoundingBox, DocumentMetadata
from services.domain.chunks import Chunk
from services.domain.filters import Filter
from services.domain.ids import DocumentId, DocVersionId, IndexVersionId, KnowledgeBaseId
from services.index.schema import CollectionSchema

Floats: TypeAlias = NDArray[np.float32]
Indices: TypeAlias = NDArray[np.uint32]

#: Namespace of point ids. Changing it orphans every point written before.
_POINT_NAMESPACE = UUID("6f0c1f2e-0f53-5b0e-9c64-3a1d5a5f7c11")


def point_id(index_version: IndexVersionId, doc_version: DocVersionId, ordinal: int) -> str:
    """The id of a chunk's point: a function of its place, so that repeating a write changes nothing."""
    return str(uuid5(_POINT_NAMESPACE, f"{index_version}/{doc_version}/{ordinal}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseVector:
    """Term weights: `indices` (u32, unique) and `values` (f32, finite), of equal length."""

    indices: Indices
    values: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class PointWrite:
    """A chunk with its vectors. `dense` is f32 of shape (dimensions,)."""

    chunk: Chunk
    dense: Floats
    sparse: SparseVector


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedDocument:
    """The version of a document that points belong to, with what filters can see of it.

    `page_count` is None where the format has no pages.
    """

    kb_id: KnowledgeBaseId
    index_version: IndexVersionId
    document_id: DocumentId
    doc_version: DocVersionId
    name: str
    metadata: DocumentMetadata
    page_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """One search in one knowledge base: ranked lists for every dense and every sparse vector, in that order.

    All lists obey the same bounds: this knowledge base and index version, none of `hidden_doc_versions`, and every one
    of `filters`.
    """

    schema: CollectionSchema
    kb_id: KnowledgeBaseId
    index_version: IndexVersionId
    hidden_doc_versions: tuple[DocVersionId, ...] = ()
    filters: tuple[Filter, ...] = ()
    dense: tuple[Floats, ...] = ()
    sparse: tuple[SparseVector, ...] = ()
    limit: int = 150


class Hit(NamedTuple):
    """A point found, with the engine's score: cosine for a dense list, BM25 for a sparse one.

    A tuple, because a search makes 300 of them: a quarter of the time that a frozen dataclass takes.
    """

    point_id: str
    score: float
    doc_version: DocVersionId
    document_id: DocumentId
    ordinal: int
    content_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPassage:
    """A chunk as it was written, and the document version it belongs to."""

    point_id: str
    kb_id: KnowledgeBaseId
    index_version: IndexVersionId
    document_id: DocumentId
    doc_version: DocVersionId
    ordinal: int
    text: str
    prefix: str
    section: tuple[str, ...]
    first_page: int | None
    last_page: int | None
    boxes: tuple[BoundingBox, ...]
    start: int
    end: int
    word_count: int
    token_count: int
    content_hash: str

    @property
    def embedding_text(self) -> str:
        return self.prefix + self.text
