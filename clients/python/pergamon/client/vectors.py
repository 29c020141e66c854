"""Reads vectors from the matrices on the wire; numpy is used where it is installed, and never needed."""

import struct
import sys
from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from pergamon.type.v1.vectors_pb2 import DataType, DenseMatrix, SparseMatrix

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Number = TypeVar("Number", int, float)


def rows(matrix: DenseMatrix) -> "list[array[float]]":
    """The rows of a dense matrix, each an `array('f')` of `matrix.dimensions` elements.

    Raises ValueError when the bytes do not fit the announced shape.

    >>> rows(DenseMatrix(data=struct.pack("<4f", 1, 2, 3, 4), rows=2, dimensions=2))
    [array('f', [1.0, 2.0]), array('f', [3.0, 4.0])]
    """
    size = _element_bytes(matrix)
    width = matrix.dimensions * size
    pieces = (matrix.data[start : start + width] for start in range(0, matrix.rows * width, width or 1))
    if size == 2:
        return [array("f", struct.unpack(f"<{matrix.dimensions}e", piece)) for piece in pieces]
    return [_filled(array("f"), piece) for piece in pieces]


def as_numpy(matrix: DenseMatrix) -> "NDArray[np.float32]":
    """A dense matrix as float32 of shape (rows, dimensions); read-only and without a copy where the wire has float32.

    Raises ImportError without numpy, ValueError when the bytes do not fit the announced shape.
    """
    import numpy as np

    wire = np.dtype("<f2" if _element_bytes(matrix) == 2 else "<f4")
    flat = np.frombuffer(matrix.data, dtype=wire)
    return flat.reshape(matrix.rows, matrix.dimensions).astype(np.float32, copy=False)


def sparse_rows(matrix: SparseMatrix) -> "list[tuple[array[int], array[float]]]":
    """The rows of a sparse matrix: term ids `array('I')`, ascending, and their weights `array('f')`.

    Raises ValueError when the parts do not fit together.
    """
    indices, values = _filled(array("I"), matrix.indices), _filled(array("f"), matrix.values)
    offsets = list(matrix.offsets)
    if len(indices) != len(values) or (offsets and offsets[-1] != len(indices)) or offsets != sorted(offsets):
        raise ValueError(f"{len(indices)} indices, {len(values)} values and offsets to {offsets[-1:]} do not fit")
    return [(indices[start:end], values[start:end]) for start, end in pairwise(offsets)]


def _element_bytes(matrix: DenseMatrix) -> int:
    match matrix.data_type:
        case DataType.DATA_TYPE_UNSPECIFIED | DataType.DATA_TYPE_FLOAT32:
            size = 4
        case DataType.DATA_TYPE_FLOAT16:
            size = 2
        case _:
            raise ValueError(f"element type {matrix.data_type} is unknown to this client")
    expected = matrix.rows * matrix.dimensions * size
    if len(matrix.data) != expected:
        raise ValueError(f"{len(matrix.data)} bytes for {matrix.rows} x {matrix.dimensions} elements of {size} bytes")
    return size


def _filled(elements: "array[Number]", content: bytes) -> "array[Number]":
    elements.frombytes(content)
    if sys.byteorder == "big":
        elements.byteswap()
    return elements
