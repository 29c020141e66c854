# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Checkpoints that are safetensors already: names and number formats are brought into line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from services.inference.converters.converted import Converted, FloatTensor

#: Names of layer-norm tensors in checkpoints that descend from TensorFlow.
_RENAMED = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


def convert_safetensors(weights: bytes, config_json: bytes, tokenizer_json: bytes) -> Converted:
    """From model.safetensors, config.json and tokenizer.json. Integer tensors (position ids) are dropped."""
    config = cast("dict[str, Any]", json.loads(config_json))
    return Converted(tensors=rename_tensors(read_tensors(weights)), config=config, tokenizer_json=tokenizer_json)


def read_tensors(content: bytes) -> dict[str, FloatTensor]:
    """The floating-point tensors of a safetensors file, as f32."""
    tensors: dict[str, FloatTensor] = {}
    for name, entry in deserialize(content):
        tensor = _floats(cast("dict[str, Any]", entry))
        if tensor is not None:
            tensors[name] = tensor
    return tensors


def read_tensor_file(path: Path) -> dict[str, FloatTensor]:
    """The floating-point tensors of a safetensors file as they are stored, without a copy of the file in memory.

    Raises `ValueError` where it is no such file.
    """
    try:
        with safe_open(str(path), framework="numpy") as file:
            dtypes = {name: str(file.get_slice(name).get_dtype()) for name in file.keys()}  # noqa: SIM118
            if "BF16" not in dtypes.values():
                return {name: file.get_tensor(name) for name, dtype in dtypes.items() if dtype in _DTYPES}
        return read_tensors(path.read_bytes())  # the library gives numpy no bf16
    except SafetensorError as error:
        raise ValueError(f"{path.name} is not a readable safetensors file: {error}") from error


def rename_tensors(tensors: Mapping[str, FloatTensor]) -> dict[str, FloatTensor]:
    return {_renamed(name): tensor for name, tensor in tensors.items()}


def _renamed(name: str) -> str:
    for old, new in _RENAMED.items():
        if name.endswith(old):
            return name[: -len(old)] + new
    return name


def _floats(entry: dict[str, Any]) -> FloatTensor | None:
    dtype, content, shape = str(entry["dtype"]), bytes(entry["data"]), tuple(entry["shape"])
    if dtype == "BF16":  # numpy has no bf16: it is the upper half of an f32
        wide = np.frombuffer(content, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape)
    if dtype not in _DTYPES:
        return None
    return np.frombuffer(content, _DTYPES[dtype]).astype(np.float32).reshape(shape)
