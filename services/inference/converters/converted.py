# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""What every converter makes, and how it becomes a folder of the store."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from services.inference.checkpoint import CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE

FloatTensor = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Converted:
    """Tensors under their Hugging Face names, the config that describes them, and the bytes of tokenizer.json."""

    tensors: Mapping[str, FloatTensor]
    config: Mapping[str, Any]
    tokenizer_json: bytes

    def write(self, folder: Path) -> None:
        """Store matrices as f16 and vectors as f32: half the disk and memory; rounding stays below 0.05 %."""
        stored = {name: _compact(tensor) for name, tensor in self.tensors.items()}
        save_file(stored, str(folder / WEIGHTS_FILE), metadata={"format": "pt"})
        (folder / CONFIG_FILE).write_text(json.dumps(dict(self.config), indent=2) + "\n", encoding="utf-8")
        (folder / TOKENIZER_FILE).write_bytes(without_limits(self.tokenizer_json))


def _compact(tensor: FloatTensor) -> FloatTensor:
    if tensor.ndim < 2 or np.abs(tensor).max(initial=0.0) > np.finfo(np.float16).max:
        return np.ascontiguousarray(tensor, np.float32)
    return np.ascontiguousarray(tensor, np.float16)


def without_limits(tokenizer_json: bytes) -> bytes:
    """tokenizer.json without the truncation and padding that some publishers bake in: limits belong to the card."""
    parsed = cast("dict[str, Any]", json.loads(tokenizer_json))
    if parsed.get("truncation") is None and parsed.get("padding") is None:
        return tokenizer_json
    parsed["truncation"] = parsed["padding"] = None
    return json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def bert_config(
    *, layers: int, heads: int, hidden: int, inner: int, vocabulary: int, positions: int = 512, types: int = 2,
    layer_norm_eps: float = 1e-12, architecture: str = "BertModel", labels: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A Hugging Face config.json of a BERT, for sources that ship none."""
    config: dict[str, Any] = {
        "model_type": "bert", "architectures": [architecture], "hidden_act": "gelu", "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner, "vocab_size": vocabulary,
        "max_position_embeddings": positions, "type_vocab_size": types, "layer_norm_eps": layer_norm_eps,
        "pad_token_id": 0, "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1,
    }  # fmt: skip
    if labels is not None:
        config |= {"id2label": {str(i): f"LABEL_{i}" for i in range(labels)}}
        config |= {"label2id": {f"LABEL_{i}": i for i in range(labels)}}
    return config
