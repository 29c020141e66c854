"""A backend without a model, for tests and dry runs: vectors from hashes of the ids, at once."""

import hashlib
from collections.abc import Callable

import numpy as np

from services.inference.backends.rows import unit_rows
from services.inference.cards import ModelCard, ModelKind
from services.inference.types import BatchOutput, SparseVector, TokenBatch


class FakeBackend:
    """Equal ids give equal rows, whatever else is in the batch. `before_run` sees each batch first and may raise."""

    def __init__(self, card: ModelCard, *, before_run: Callable[[TokenBatch], None] | None = None) -> None:
        self.card = card
        self.device = "fake"
        self.closed = False
        self._before_run = before_run

    def run(self, batch: TokenBatch) -> BatchOutput:
        if self._before_run is not None:
            self._before_run(batch)
        seeds = [_seed(row[keep == 1]) for row, keep in zip(batch.ids, batch.mask, strict=True)]
        match self.card.kind:
            case ModelKind.DENSE:
                rows = np.stack([_normal(seed, self.card.dimensions) for seed in seeds])
                return BatchOutput(dense=unit_rows(rows))
            case ModelKind.RERANKER:
                return BatchOutput(logits=np.array([_normal(seed, 1)[0] * 4 for seed in seeds], np.float32))
            case ModelKind.SPARSE:
                rows_of_ids = (row[keep == 1] for row, keep in zip(batch.ids, batch.mask, strict=True))
                return BatchOutput(sparse=tuple(_terms(ids, self.card.dimensions) for ids in rows_of_ids))

    def close(self) -> None:
        self.closed = True


def _seed(ids: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> int:
    return int.from_bytes(hashlib.blake2b(ids.tobytes(), digest_size=8).digest(), "little")


def _normal(seed: int, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(size, np.float32)


def _terms(ids: np.ndarray[tuple[int, ...], np.dtype[np.int32]], vocabulary: int) -> SparseVector:
    indices, counts = np.unique(ids % vocabulary, return_counts=True)
    return SparseVector(indices=indices.astype(np.uint32), values=np.log1p(counts).astype(np.float32))
