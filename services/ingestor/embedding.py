"""Vectors for chunks: dense ones reused where the text was embedded before, BM25 ones by the average of the index."""

from collections.abc import Sequence

import numpy as np

from services.domain.chunks import Chunk
from services.index.payload import embed_hash
from services.index.types import Floats, PointWrite, SparseVector
from services.index.writer import IndexWriter
from services.ingestor.ports import EmbeddedPassages, Embedder
from services.ingestor.settings import IngestorSettings
from services.ingestor.types import Task

#: Enough of a document to know how long its chunks are.
_SAMPLE_CHUNKS = 256


class ChunkEmbedder:
    """Embeds the chunks of one document for one knowledge base."""

    def __init__(self, embedder: Embedder, index: IndexWriter, task: Task, settings: IngestorSettings) -> None:
        self._embedder = embedder
        self._index = index
        self._task = task
        self._settings = settings

    async def average_length(self, chunks: Sequence[Chunk]) -> float:
        """Terms a chunk that BM25 weights are computed with.

        It is what the index version was written with so far, so that all weights in it compare; for its first
        document, the mean of that document.
        """
        written = self._task.kb.index.written_average_length
        if written > 0:
            return written
        texts = [chunk.embedding_text for chunk in chunks[:_SAMPLE_CHUNKS]]
        lengths = (await self._embed(texts, dense=False, average_length=1.0)).lengths
        return max(1.0, sum(lengths) / len(lengths))

    async def points(self, chunks: Sequence[Chunk], average_length: float) -> tuple[list[PointWrite], int]:
        """Points for a batch of chunks, and the sum of their lengths in terms."""
        known = await self._known_vectors(chunks)
        texts = [chunk.embedding_text for chunk in chunks]
        missing = [position for position, text in enumerate(texts) if embed_hash(text) not in known]
        whole = len(missing) == len(texts)
        embedded = await self._embed(texts, dense=whole, average_length=average_length)
        if embedded.dense is not None:
            dense: list[Floats] = list(embedded.dense)
        else:
            dense = await self._fill(texts, missing, known, average_length)
        points = [
            PointWrite(
                chunk=chunk,
                dense=vector,
                sparse=SparseVector(indices=sparse.indices, values=sparse.values),
            )
            for chunk, vector, sparse in zip(chunks, dense, embedded.sparse, strict=True)
        ]
        return points, sum(embedded.lengths)

    async def _known_vectors(self, chunks: Sequence[Chunk]) -> dict[str, Floats]:
        """Vectors of texts that the document had before; a new document has none."""
        if self._task.document.live_version is None:
            return {}
        return await self._index.vectors_by_hash(
            self._task.schema,
            self._task.kb.id,
            [embed_hash(chunk.embedding_text) for chunk in chunks],
            index_version=self._task.version.index_version,
            timeout_s=self._settings.index_timeout_s,
        )

    async def _fill(
        self, texts: list[str], missing: list[int], known: dict[str, Floats], average_length: float
    ) -> list[Floats]:
        fresh: dict[int, Floats] = {}
        if missing:
            some = [texts[position] for position in missing]
            vectors = (await self._embed(some, dense=True, average_length=average_length)).dense
            fresh = dict(zip(missing, vectors if vectors is not None else np.empty((0, 0), np.float32), strict=True))
        return [
            fresh[position] if position in fresh else known[embed_hash(text)] for position, text in enumerate(texts)
        ]

    async def _embed(self, texts: Sequence[str], *, dense: bool, average_length: float) -> EmbeddedPassages:
        kb = self._task.kb
        return await self._embedder.embed(
            texts,
            dense_model=kb.embedding_model if dense else None,
            sparse_model=kb.sparse_model,
            average_length=average_length,
            language=kb.language,
            timeout_s=self._settings.embed_timeout_s,
        )
