"""From raw rows of a device to what the batcher hands out."""

import numpy as np

from services.inference.types import FloatArray, SparseVector


def unit_rows(rows: FloatArray) -> FloatArray:
    """Rows of length one, computed in f32 whatever the device used. A row of zeros becomes NaN: it has no direction."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (rows / lengths).astype(np.float32, copy=False)


def sparse_rows(rows: FloatArray) -> tuple[SparseVector, ...]:
    """The entries above zero of each row. A row with a NaN keeps it, so that the check behind sees it."""
    out: list[SparseVector] = []
    for row in rows:
        indices = np.flatnonzero((row > 0) | np.isnan(row))
        out.append(SparseVector(indices=indices.astype(np.uint32), values=row[indices].astype(np.float32)))
    return tuple(out)
