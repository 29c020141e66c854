"""Cutting and packing: nothing becomes zero, infinite or NaN on the way."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pergamon.client import as_numpy
from pergamon.type.v1.vectors_pb2 import DataType as WireType
from pergamon.type.v1.vectors_pb2 import DenseMatrix

from services.embedder.dense import cut, pack, row_bytes
from services.embedder.types import DataType


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    rows = rows + np.eye(*rows.shape, dtype=np.float32) * 2
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-3)).astype(np.float32)


UNIT = (
    st.integers(1, 40)
    .flatmap(lambda width: arrays(np.float32, (3, width), elements=st.floats(-1, 1, width=32)))
    .map(_unit_rows)
)


def decoded(matrix: np.ndarray, data_type: DataType) -> np.ndarray:
    packed = pack(matrix, data_type)
    return as_numpy(
        DenseMatrix(
            data=packed.data, scales=packed.scales, rows=matrix.shape[0], dimensions=matrix.shape[1],
            data_type=WireType.Value(f"DATA_TYPE_{data_type}"),
        )
    )  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(UNIT, st.sampled_from([kind for kind in DataType if kind is not DataType.UBINARY]))
def test_pack_when_a_row_is_not_zero_then_it_decodes_to_nearly_itself(matrix: np.ndarray, data_type: DataType):
    found = decoded(matrix, data_type)
    assert np.isfinite(found).all()
    assert (found.any(axis=1) == matrix.any(axis=1)).all()
    np.testing.assert_allclose(found, matrix, atol=0.005)


@pytest.mark.parametrize("data_type", DataType)
def test_row_bytes_when_packed_then_as_announced(data_type: DataType):
    packed = pack(np.ones((3, 13), np.float32), data_type)
    assert len(packed.data) + len(packed.scales) == 3 * row_bytes(13, data_type)


def test_bfloat16_when_packed_then_rounds_to_nearest_and_ties_to_even():
    halves = {0x3F800000: 0x3F80, 0x3F808000: 0x3F80, 0x3F818000: 0x3F82, 0x3F808001: 0x3F81, 0xBF80FFFF: 0xBF81}
    matrix = np.array([list(halves)], np.uint32).view(np.float32)
    assert pack(matrix, DataType.BFLOAT16).data == struct.pack("<5H", *halves.values())


def test_ubinary_when_packed_then_the_first_element_is_the_highest_bit():
    assert pack(np.array([[0.5, -0.5, 0.0, 0.1, 0, 0, 0, 0, 1]], np.float32), DataType.UBINARY).data == b"\x90\x80"


def test_int8_when_packed_then_the_largest_element_is_127():
    packed = pack(np.array([[0.5, -1.0], [0.0, 0.0]], np.float32), DataType.INT8)
    assert packed.data == struct.pack("4b", 64, -127, 0, 0)
    np.testing.assert_allclose(np.frombuffer(packed.scales, "<f4"), [1 / 127, 0])


def test_cut_when_too_little_is_left_for_a_direction_then_zero():
    matrix = np.array([[0, 0, 1], [1e-8, 0, 1], [3, 4, 0]], np.float32)
    np.testing.assert_allclose(cut(matrix, 2), [[0, 0], [0, 0], [0.6, 0.8]], atol=1e-7)
