"""What the ingestor needs of other services, as it wants to see it. `app` adapts the clients to these."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingModel:
    """A dense model: input limit in tokens, and how many of them its markers and passage prefix take."""

    name: str
    dimensions: int
    max_tokens: int
    passage_overhead_tokens: int
    tokenizer_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseVector:
    """`indices` uint32 ascending, `values` float32, parallel."""

    indices: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedPassages:
    """In the order of the texts: `dense` [texts, dimensions] of unit rows (None when not asked for), BM25 vectors, and
    lengths in BM25 terms."""

    dense: npt.NDArray[np.float32] | None
    sparse: tuple[SparseVector, ...]
    lengths: tuple[int, ...]


class Embedder(Protocol):
    """Errors: Unavailable (EMBEDDER_UNAVAILABLE), NotFound.model, DocumentError when a text has no vector."""

    async def dense_model(self, name: str) -> EmbeddingModel:
        """The model called `name`; empty: the default."""
        ...

    async def sparse_tokenizer_version(self, name: str) -> str:
        """Version of the term analysis of the sparse model called `name`; empty: bm25."""
        ...

    async def tokenizer_file(self, sha256: str) -> Path:
        """tokenizer.json on this machine, fetched once."""
        ...

    async def embed(
        self,
        texts: Sequence[str],
        *,
        dense_model: str | None,
        sparse_model: str,
        average_length: float,
        language: str,
        timeout_s: float,
    ) -> EmbeddedPassages:
        """Embed passages in the bulk lane; `dense_model` None: BM25 only. `average_length` in terms, above 0."""
        ...
