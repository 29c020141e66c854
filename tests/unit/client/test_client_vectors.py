"""Vectors are read from their wire form, with and without numpy."""

import struct
from array import array

import numpy as np
import pytest
from pergamon.client import as_numpy, rows, sparse_rows
from pergamon.type.v1.vectors_pb2 import DataType, DenseMatrix, SparseMatrix

FLOAT16 = DataType.DATA_TYPE_FLOAT16


def test_rows_of_float32_are_split_by_dimension():
    matrix = DenseMatrix(data=struct.pack("<6f", 1, 2, 3, 4, 5, 6), rows=2, dimensions=3)
    assert rows(matrix) == [array("f", [1, 2, 3]), array("f", [4, 5, 6])]


def test_rows_of_float16_are_widened():
    matrix = DenseMatrix(data=struct.pack("<4e", 0.5, -2, 1, 0.25), rows=2, dimensions=2, data_type=FLOAT16)
    assert rows(matrix) == [array("f", [0.5, -2]), array("f", [1, 0.25])]


def test_rows_of_an_empty_matrix_are_none():
    assert rows(DenseMatrix()) == []


@pytest.mark.parametrize(("data_type", "wire"), [(DataType.DATA_TYPE_FLOAT32, "<f4"), (FLOAT16, "<f2")])
def test_as_numpy_of_a_matrix_agrees_with_rows(data_type, wire):
    values = np.linspace(-1, 1, 12).reshape(3, 4).astype(wire)
    matrix = DenseMatrix(data=values.tobytes(), rows=3, dimensions=4, data_type=data_type)
    found = as_numpy(matrix)
    assert found.dtype == np.float32
    assert found.shape == (3, 4)
    np.testing.assert_array_equal(found, np.array([list(row) for row in rows(matrix)], dtype=np.float32))


@pytest.mark.parametrize("read", [rows, as_numpy])
@pytest.mark.parametrize(
    "matrix",
    [DenseMatrix(data=b"1234567", rows=1, dimensions=2), DenseMatrix(data=b"", rows=1, dimensions=1, data_type=9)],
    ids=["size", "type"],
)
def test_reading_a_matrix_that_does_not_fit_is_refused(read, matrix):
    with pytest.raises(ValueError, match=r"bytes for|unknown"):
        read(matrix)


def test_sparse_rows_are_cut_at_the_offsets():
    matrix = SparseMatrix(offsets=[0, 2, 2, 3], indices=struct.pack("<3I", 1, 9, 4), values=struct.pack("<3f", 1, 2, 3))
    assert sparse_rows(matrix) == [
        (array("I", [1, 9]), array("f", [1, 2])),
        (array("I"), array("f")),
        (array("I", [4]), array("f", [3])),
    ]


def test_sparse_rows_of_parts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        sparse_rows(SparseMatrix(offsets=[0, 2], indices=struct.pack("<I", 1), values=struct.pack("<f", 1)))
