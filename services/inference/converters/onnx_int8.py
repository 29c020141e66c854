"""BERT models that ONNX Runtime quantised dynamically to int8, back to floating point.

A quantised tensor X is stored as X_quantized, X_scale and X_zero_point: value = (quantized - zero_point) * scale.
Matrices of linear layers carry generated names and lie [in, out]; the name of the MatMulInteger node that uses them
says which layer they belong to.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from services.inference.converters.converted import Converted, FloatTensor
from services.inference.converters.onnx_reader import MalformedOnnx, OnnxGraph, read_onnx

_QUANTIZED = "_quantized"
_NODE_TAIL = re.compile(r"/(Gemm_)?(MatMul|Gemm)(_\d+)?_quant$")


def convert_onnx_int8(onnx: bytes, config: Mapping[str, Any] | bytes, tokenizer_json: bytes) -> Converted:
    """Raises `MalformedOnnx` where the file is not such a model."""
    parsed = cast("Mapping[str, Any]", json.loads(config)) if isinstance(config, bytes) else config
    return Converted(tensors=dequantised(read_onnx(onnx)), config=parsed, tokenizer_json=tokenizer_json)


def dequantised(graph: OnnxGraph) -> dict[str, FloatTensor]:
    out: dict[str, FloatTensor] = {}
    for name, tensor in graph.tensors.items():
        base = name.removesuffix(_QUANTIZED)
        if base != name and base.endswith("embeddings.weight"):
            out[base] = _dequantise(graph.tensors, base)
        elif name.endswith((".weight", ".bias")):
            out[name] = cast("FloatTensor", tensor)
    for node in graph.nodes:
        matrix = next((i for i in node.inputs if i.endswith(_QUANTIZED) and i in graph.tensors), None)
        if node.op_type != "MatMulInteger" or matrix is None:
            continue
        layer, matched = _NODE_TAIL.subn("", node.name)
        if not matched:
            raise MalformedOnnx(f"cannot tell which layer node {node.name!r} belongs to")
        values = _dequantise(graph.tensors, matrix.removesuffix(_QUANTIZED))
        out[layer.strip("/").replace("/", ".") + ".weight"] = values.T
    return out


def _dequantise(tensors: Mapping[str, npt.NDArray[np.generic]], base: str) -> npt.NDArray[np.float32]:
    if base + "_scale" not in tensors or base + "_zero_point" not in tensors:
        raise MalformedOnnx(f"tensor {base!r} has no scale or zero point")
    scale = tensors[base + "_scale"].astype(np.float32)
    zero = tensors[base + "_zero_point"].astype(np.float32)
    return (tensors[base + _QUANTIZED].astype(np.float32) - zero) * scale
