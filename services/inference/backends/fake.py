"""A backend without a model, for tests and dry runs: vectors from hashes of the ids, at once."""

import hashlib
from collections.abc import Callable

import numpy as np

from services.inference.backends.rows import unit_rows
from services.inference.cards import ModelCard
from services.inference.types import BatchOutput, Output, SparseVector, TokenBatch


class FakeBackend:
    """Equal ids give equal rows, whatever else is in the batch. `before_run` sees each batch first and may raise."""

    def __init__(self, card: ModelCard, *, before_run: Callable[[TokenBatch], None] | None = None) -> None:
        self.card = card
        self.device = "fake"
        self.padding_free = False
        self.closed = False
        self.released = 0
        self._before_run = before_run

    def run(self, batch: TokenBatch) -> BatchOutput:
        if self._before_run is not None:
            self._before_run(batch)
        seeds = [_seed(row[keep == 1]) for row, keep in zip(batch.ids, batch.mask, strict=True)]
        dense = sparse = multi_vector = logits = None
        if Output.DENSE in batch.outputs:
            dense = unit_rows(np.stack([_normal(seed, self.card.dimensions) for seed in seeds]))
        if Output.SPARSE in batch.outputs:
            rows = (row[keep == 1] for row, keep in zip(batch.ids, batch.mask, strict=True))
            sparse = tuple(_terms(ids) for ids in rows)
        if Output.MULTI_VECTOR in batch.outputs:
            lengths = batch.mask.sum(axis=1).tolist()
            wide = self.card.multi_vector_dimensions
            multi_vector = tuple(
                unit_rows(_normal(seed, n * wide).reshape(n, wide)) for seed, n in zip(seeds, lengths, strict=True)
            )
        if Output.LOGIT in batch.outputs:
            logits = np.array([_normal(seed, 1)[0] * 4 for seed in seeds], np.float32)
        return BatchOutput(dense=dense, sparse=sparse, multi_vector=multi_vector, logits=logits)

    def release_memory(self) -> None:
        self.released += 1

    def close(self) -> None:
        self.closed = True


def _seed(ids: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> int:
    return int.from_bytes(hashlib.blake2b(ids.tobytes(), digest_size=8).digest(), "little")


def _normal(seed: int, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(size, np.float32)


def _terms(ids: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> SparseVector:
    indices, counts = np.unique(ids, return_counts=True)
    return SparseVector(indices=indices.astype(np.uint32), values=np.log1p(counts).astype(np.float32))
