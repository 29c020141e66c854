"""The real tokens of a batch end to end, without padding: the layout in which heads and the packed encoder work."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from services.inference.types import IntArray, TokenBatch


class Run(NamedTuple):
    """Neighbouring texts of `length` tokens each."""

    first_token: int
    first_text: int
    texts: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """`ids` and `type_ids` int32 [tokens]; text i is `bounds[i]:bounds[i + 1]`; `places` are indices into [n * t]."""

    ids: IntArray
    type_ids: IntArray
    places: IntArray
    bounds: IntArray

    @classmethod
    def of(cls, batch: TokenBatch) -> "Packed":
        kept = batch.mask != 0
        bounds = np.zeros(batch.size + 1, np.int32)
        np.cumsum(kept.sum(axis=1, dtype=np.int32), out=bounds[1:])
        places = np.flatnonzero(kept).astype(np.int32)
        return cls(ids=batch.ids[kept], type_ids=batch.type_ids[kept], places=places, bounds=bounds)

    @property
    def lengths(self) -> IntArray:
        return np.diff(self.bounds)

    @property
    def size(self) -> int:
        return len(self.bounds) - 1

    @property
    def offsets(self) -> IntArray:
        """How far each token is from the beginning of its text: int32 [tokens], from 0."""
        return np.arange(len(self.ids), dtype=np.int32) - np.repeat(self.bounds[:-1], self.lengths)

    def runs(self) -> list[Run]:
        """All texts, neighbours of equal length together; empty texts are left out."""
        lengths = self.lengths
        edges = np.flatnonzero(np.diff(lengths, prepend=-1, append=-1))
        return [
            Run(first_token=int(self.bounds[start]), first_text=start, texts=end - start, length=int(lengths[start]))
            for start, end in pairwise(edges.tolist())
            if lengths[start]
        ]
