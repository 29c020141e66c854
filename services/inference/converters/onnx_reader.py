"""Reads the tensors and nodes of an ONNX file: the few protobuf messages of it that conversion needs.

The wire format is that of protobuf.dev/programming-guides/encoding; field numbers are those of onnx.proto (IR version
8): ModelProto.graph 7; GraphProto.node 1, .initializer 5; NodeProto.input 1, .name 3, .op_type 4; TensorProto.dims 1,
.data_type 2, .float_data 4, .int32_data 5, .name 8, .raw_data 9.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: TensorProto.DataType values that weights come in.
_DTYPES: dict[int, npt.DTypeLike] = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 10: np.float16}
_INT32_DATA_TYPES = (2, 3, 6)


class MalformedOnnx(ValueError):
    """The bytes are not an ONNX model, or use a feature that is not read here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxNode:
    name: str
    op_type: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxGraph:
    nodes: tuple[OnnxNode, ...]
    tensors: dict[str, npt.NDArray[np.generic]]


def read_onnx(content: bytes) -> OnnxGraph:
    """Nodes and initializers of the top-level graph. Raises `MalformedOnnx`."""
    try:
        graph = next(value for number, value in _fields(memoryview(content)) if number == 7)
        nodes: list[OnnxNode] = []
        tensors: dict[str, npt.NDArray[np.generic]] = {}
        for number, value in _fields(_bytes(graph)):
            if number == 1:
                nodes.append(_node(_bytes(value)))
            elif number == 5:
                name, tensor = _tensor(_bytes(value))
                tensors[name] = tensor
    except (StopIteration, IndexError, struct.error, UnicodeDecodeError, TypeError, KeyError, ValueError) as error:
        raise MalformedOnnx(f"not a readable ONNX model: {error}") from error
    return OnnxGraph(nodes=tuple(nodes), tensors=tensors)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """The (field number, value) pairs of one message; length-delimited values as views, numbers as integers."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(message, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise MalformedOnnx(f"wire type {wire} in field {number}")
        if at + size > end:
            raise MalformedOnnx(f"field {number} runs past the end of its message")
        yield number, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise MalformedOnnx("a number of more than 64 bits")


def _bytes(value: memoryview | int) -> memoryview:
    if isinstance(value, int):
        raise MalformedOnnx("a number where a message was expected")
    return value


def _text(value: memoryview | int) -> str:
    return bytes(_bytes(value)).decode("utf-8")


def _node(message: memoryview) -> OnnxNode:
    name = op_type = ""
    inputs: list[str] = []
    for number, value in _fields(message):
        if number == 1:
            inputs.append(_text(value))
        elif number == 3:
            name = _text(value)
        elif number == 4:
            op_type = _text(value)
    return OnnxNode(name=name, op_type=op_type, inputs=tuple(inputs))


def _tensor(message: memoryview) -> tuple[str, npt.NDArray[np.generic]]:
    name, data_type, raw = "", 0, memoryview(b"")
    dims: list[int] = []
    floats: list[npt.NDArray[np.float32]] = []
    integers: list[int] = []
    for number, value in _fields(message):
        if number == 1:
            dims.extend(_integers(value))
        elif number == 2 and isinstance(value, int):
            data_type = value
        elif number == 4:
            floats.append(np.frombuffer(_bytes(value), "<f4"))
        elif number == 5:
            integers.extend(_integers(value))
        elif number == 8:
            name = _text(value)
        elif number == 9:
            raw = _bytes(value)
    dtype = np.dtype(_DTYPES[data_type]).newbyteorder("<")
    if len(raw):
        tensor: npt.NDArray[np.generic] = np.frombuffer(raw, dtype)
    elif floats:
        tensor = np.concatenate(floats)
    elif integers and data_type in _INT32_DATA_TYPES:
        tensor = np.array([i - (1 << 64) if i >> 63 else i for i in integers]).astype(dtype)
    else:
        tensor = np.zeros(0, dtype)
    return name, tensor.reshape(dims)


def _integers(value: memoryview | int) -> list[int]:
    """A repeated integer field, packed or not."""
    if isinstance(value, int):
        return [value]
    out: list[int] = []
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        out.append(number)
    return out
