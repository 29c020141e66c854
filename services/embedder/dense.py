"""What becomes of dense vectors behind the model: cut and scaled again, and as smaller elements."""

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt

from services.embedder.types import DataType
from services.inference.types import FloatArray

#: A part of a unit vector that is shorter is made of rounding errors: it has no direction worth scaling up.
_LEAST_NORM = 1e-6
_INT8_MAX = 127
_BITS = {DataType.FLOAT32: 32, DataType.FLOAT16: 16, DataType.BFLOAT16: 16, DataType.INT8: 8, DataType.UBINARY: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Rows as little-endian bytes; `scales` float32, one a row, for INT8 alone."""

    data: bytes
    scales: bytes = b""


def cut(matrix: FloatArray, dimensions: int) -> FloatArray:
    """The first `dimensions` of each row, at unit length (Kusupati et al., 2022, Matryoshka Representation Learning).

    A row of which too little is left for a direction becomes zero.
    """
    head = matrix[:, :dimensions]
    lengths = np.linalg.norm(head.astype(np.float64), axis=1, keepdims=True)
    return np.divide(head, lengths, out=np.zeros_like(head), where=lengths > _LEAST_NORM, casting="same_kind")


def row_bytes(dimensions: int, data_type: DataType) -> int:
    """Bytes of one row on the wire, with its scale."""
    return -(-dimensions * _BITS[data_type] // 8) + (4 if data_type is DataType.INT8 else 0)


def pack(matrix: FloatArray, data_type: DataType) -> Packed:
    """Finite float32 [rows, dimensions], no element beyond -1 to 1, as elements of `data_type`.

    No row that is not zero becomes zero by that, but in UBINARY, where all bits may be 0.
    """
    match data_type:
        case DataType.FLOAT32:
            return Packed(data=matrix.astype("<f4", copy=False).tobytes())
        case DataType.FLOAT16:
            return Packed(data=matrix.astype("<f2").tobytes())
        case DataType.BFLOAT16:
            return Packed(data=_bfloat16(matrix).astype("<u2", copy=False).tobytes())
        case DataType.INT8:
            scales = np.abs(matrix).max(axis=1, initial=0.0, keepdims=True) / np.float32(_INT8_MAX)
            levels = np.divide(matrix, scales, out=np.zeros_like(matrix), where=scales > 0)
            return Packed(data=np.rint(levels).astype(np.int8).tobytes(), scales=scales.astype("<f4").tobytes())
        case DataType.UBINARY:
            return Packed(data=np.packbits(matrix > 0, axis=1).tobytes())
    assert_never(data_type)


def _bfloat16(matrix: FloatArray) -> npt.NDArray[np.uint16]:
    """The upper halves, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(matrix, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
