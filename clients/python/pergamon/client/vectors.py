"""Reads vectors from the matrices on the wire; numpy is used where it is installed, and never needed."""

import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from pergamon.type.v1.vectors_pb2 import DataType, DenseMatrix, MultiVectorMatrix, SparseMatrix

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Number = TypeVar("Number", int, float)

_BITS = {
    DataType.DATA_TYPE_UNSPECIFIED: 32,
    DataType.DATA_TYPE_FLOAT32: 32,
    DataType.DATA_TYPE_FLOAT16: 16,
    DataType.DATA_TYPE_BFLOAT16: 16,
    DataType.DATA_TYPE_INT8: 8,
    DataType.DATA_TYPE_UBINARY: 1,
}


def rows(matrix: DenseMatrix) -> "list[array[float]]":
    """The rows of a dense matrix, each an `array('f')` of `matrix.dimensions` elements, whatever the wire has.

    INT8 is multiplied with the scale of its row; a bit of UBINARY becomes 1 or -1, in the row of a failed text too.
    Raises ValueError when the bytes do not fit the announced shape.

    >>> rows(DenseMatrix(data=struct.pack("<4f", 1, 2, 3, 4), rows=2, dimensions=2))
    [array('f', [1.0, 2.0]), array('f', [3.0, 4.0])]
    """
    pieces, dimensions = packed_rows(matrix), matrix.dimensions
    match matrix.data_type:
        case DataType.DATA_TYPE_FLOAT16:
            return [array("f", struct.unpack(f"<{dimensions}e", piece)) for piece in pieces]
        case DataType.DATA_TYPE_BFLOAT16:
            return [_filled(array("f"), _upper_halves(piece)) for piece in pieces]
        case DataType.DATA_TYPE_INT8:
            scales = _filled(array("f"), matrix.scales)
            return [
                array("f", (scale * level for level in array("b", piece)))
                for piece, scale in zip(pieces, scales, strict=True)
            ]
        case DataType.DATA_TYPE_UBINARY:
            return [array("f", _signs(piece, dimensions)) for piece in pieces]
        case _:
            return [_filled(array("f"), piece) for piece in pieces]


def packed_rows(matrix: DenseMatrix) -> list[bytes]:
    """The bytes of each row as they are on the wire, for engines and distances that take them so: the bits of UBINARY.

    Raises ValueError when the bytes do not fit the announced shape.

    >>> packed_rows(DenseMatrix(data=bytes([0b10000000, 0]), rows=2, dimensions=3, data_type="DATA_TYPE_UBINARY"))
    [b'\\x80', b'\\x00']
    """
    width = _checked_width(matrix)
    return [matrix.data[start : start + width] for start in range(0, matrix.rows * width, width or 1)]


def as_numpy(matrix: DenseMatrix) -> "NDArray[np.float32]":
    """A dense matrix as float32 of shape (rows, dimensions), decoded as by `rows`.

    Read-only and without a copy where the wire has float32. Raises ImportError without numpy, ValueError when the bytes
    do not fit the announced shape.
    """
    import numpy as np

    width, shape = _checked_width(matrix), (matrix.rows, matrix.dimensions)
    match matrix.data_type:
        case DataType.DATA_TYPE_FLOAT16:
            return np.frombuffer(matrix.data, "<f2").reshape(shape).astype(np.float32)
        case DataType.DATA_TYPE_BFLOAT16:
            return (np.frombuffer(matrix.data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
        case DataType.DATA_TYPE_INT8:
            scales = np.frombuffer(matrix.scales, "<f4").astype(np.float32)
            return np.frombuffer(matrix.data, np.int8).reshape(shape) * scales[:, np.newaxis]
        case DataType.DATA_TYPE_UBINARY:
            packed = np.frombuffer(matrix.data, np.uint8).reshape(matrix.rows, width)
            return np.unpackbits(packed, axis=1, count=matrix.dimensions).astype(np.float32) * 2 - 1
        case _:
            return np.frombuffer(matrix.data, "<f4").reshape(shape).astype(np.float32, copy=False)


def token_rows(matrix: MultiVectorMatrix) -> "list[list[array[float]]]":
    """For each text its vectors, one a token, each as in `rows`. Raises ValueError when the parts do not fit."""
    vectors = rows(matrix.vectors)
    return [vectors[start:end] for start, end in _spans(matrix.offsets, len(vectors))]


def token_matrices(matrix: MultiVectorMatrix) -> "list[NDArray[np.float32]]":
    """For each text a float32 matrix (tokens, dimensions), as in `as_numpy`."""
    vectors = as_numpy(matrix.vectors)
    return [vectors[start:end] for start, end in _spans(matrix.offsets, len(vectors))]


def sparse_rows(matrix: SparseMatrix) -> "list[tuple[array[int], array[float]]]":
    """The rows of a sparse matrix: term ids `array('I')`, ascending, and their weights `array('f')`.

    Raises ValueError when the parts do not fit together.
    """
    indices, values = _filled(array("I"), matrix.indices), _filled(array("f"), matrix.values)
    if len(indices) != len(values):
        raise ValueError(f"{len(indices)} indices and {len(values)} values do not fit")
    return [(indices[start:end], values[start:end]) for start, end in _spans(matrix.offsets, len(indices))]


def _spans(offsets: Sequence[int], size: int) -> list[tuple[int, int]]:
    found = list(offsets)
    if (found and (found[0] != 0 or found[-1] != size)) or found != sorted(found):
        raise ValueError(f"offsets from {found[:1]} to {found[-1:]} do not fit {size} entries")
    return list(pairwise(found))


def _checked_width(matrix: DenseMatrix) -> int:
    """Bytes of a row."""
    bits = _BITS.get(matrix.data_type)
    if bits is None:
        raise ValueError(f"element type {matrix.data_type} is unknown to this client")
    width = -(-matrix.dimensions * bits // 8)
    if len(matrix.data) != matrix.rows * width:
        raise ValueError(f"{len(matrix.data)} bytes for {matrix.rows} x {matrix.dimensions} elements of {bits} bits")
    if matrix.data_type == DataType.DATA_TYPE_INT8 and len(matrix.scales) != 4 * matrix.rows:
        raise ValueError(f"{len(matrix.scales)} bytes for the scales of {matrix.rows} rows")
    return width


def _upper_halves(piece: bytes) -> bytes:
    """Little-endian bfloat16 as float32: two bytes of zeros go before each."""
    widened = bytearray(2 * len(piece))
    widened[2::4], widened[3::4] = piece[::2], piece[1::2]
    return bytes(widened)


def _signs(piece: bytes, dimensions: int) -> list[float]:
    bits = int.from_bytes(piece, "big")
    top = 8 * len(piece) - 1
    return [1.0 if bits >> (top - position) & 1 else -1.0 for position in range(dimensions)]


def _filled(elements: "array[Number]", content: bytes) -> "array[Number]":
    elements.frombytes(content)
    if sys.byteorder == "big":
        elements.byteswap()
    return elements
