"""Builders of documents and points, and a tiny world of knowledge bases in one collection."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from services.domain.blocks import BoundingBox, DocumentMetadata
from services.domain.chunks import Chunk
from services.domain.filters import Filter
from services.domain.ids import DocumentId, DocVersionId, IndexVersionId, KnowledgeBaseId, new_id
from services.index.reader import IndexReader
from services.index.schema import CollectionSchema
from services.index.types import Hit, IndexedDocument, IndexQuery, PointWrite, SparseVector
from services.index.writer import IndexWriter

DIMENSIONS = 8
TIMEOUT_S = 20.0
_versions = count(1)


def schema_of(model: str, dimensions: int = DIMENSIONS) -> CollectionSchema:
    return CollectionSchema(model=model, dimensions=dimensions, tokenizer_version="1")


def chunk_of(ordinal: int, text: str) -> Chunk:
    return Chunk(
        ordinal=ordinal,
        text=text,
        prefix="Handbook > Travel\n",
        section=("Handbook", "Travel"),
        first_page=1 + ordinal,
        last_page=None,
        boxes=(BoundingBox(page=1, x0=0.0, y0=1.5, x1=100.0, y1=20.25),),
        start=ordinal * 100,
        end=ordinal * 100 + len(text),
        word_count=len(text.split()),
        token_count=len(text.split()) + 2,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
    )


def term(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")


def sparse_of(text: str) -> SparseVector:
    indices = sorted({term(word) for word in text.split()})
    return SparseVector(indices=np.array(indices, np.uint32), values=np.ones(len(indices), np.float32))


def dense_of(text: str, dimensions: int = DIMENSIONS) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)


def point_of(ordinal: int, text: str, dimensions: int = DIMENSIONS) -> PointWrite:
    return PointWrite(chunk=chunk_of(ordinal, text), dense=dense_of(text, dimensions), sparse=sparse_of(text))


@dataclass
class World:
    """One knowledge base in the collection all tests share."""

    reader: IndexReader
    writer: IndexWriter
    schema: CollectionSchema
    kb_id: KnowledgeBaseId = field(default_factory=lambda: KnowledgeBaseId(new_id("kb")))
    index_version: IndexVersionId = field(default_factory=lambda: IndexVersionId(next(_versions)))

    def neighbour(self) -> "World":
        return World(self.reader, self.writer, self.schema)

    def document(
        self,
        name: str = "handbook.pdf",
        metadata: DocumentMetadata | None = None,
        *,
        document_id: str = "",
        doc_version: int | None = None,
        page_count: int | None = None,
    ) -> IndexedDocument:
        return IndexedDocument(
            kb_id=self.kb_id,
            index_version=self.index_version,
            document_id=DocumentId(document_id or new_id("doc")),
            doc_version=DocVersionId(next(_versions) if doc_version is None else doc_version),
            name=name,
            metadata=metadata or DocumentMetadata(),
            page_count=page_count,
        )

    async def write(self, document: IndexedDocument, *texts: str) -> IndexedDocument:
        points = [point_of(ordinal, text) for ordinal, text in enumerate(texts)]
        await self.writer.write(self.schema, document, points, timeout_s=TIMEOUT_S)
        return document

    def query(self, **changes: object) -> IndexQuery:
        bounds = {"schema": self.schema, "kb_id": self.kb_id, "index_version": self.index_version}
        return IndexQuery(**(bounds | changes))  # type: ignore[arg-type]

    async def search(self, **changes: object) -> list[list[Hit]]:
        return await self.reader.search(self.query(**changes), timeout_s=TIMEOUT_S)

    async def keyword(self, text: str, **changes: object) -> list[Hit]:
        return (await self.search(sparse=(sparse_of(text),), **changes))[0]

    async def names_matching(self, condition: Filter, names: Sequence[IndexedDocument]) -> set[str]:
        """Names of the documents that have a point which the filter lets through."""
        hits = (await self.search(dense=(dense_of("any"),), filters=(condition,)))[0]
        by_version = {document.doc_version: document.name for document in names}
        return {by_version[hit.doc_version] for hit in hits}

    async def count(self, **bounds: object) -> int:
        return await self.writer.count(self.schema, self.kb_id, timeout_s=TIMEOUT_S, **bounds)  # type: ignore[arg-type]
