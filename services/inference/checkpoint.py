# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""A model folder on disk: config.json and model.safetensors under the names Hugging Face gives them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from services.inference.errors import ModelInvalid

WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "config.json"
CARD_FILE = "card.json"

#: Prefixes that a model with a head puts before the names of its encoder.
_ENCODER_PREFIXES = ("bert.", "roberta.")
#: Architectures whose positions begin behind the id of padding; those of all others begin at 0.
_POSITIONS_AFTER_PADDING = frozenset(
    {"roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert", "mpnet", "longformer", "ibert",
     "data2vec-text", "xmod"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The shape of a BERT-like encoder; `position_offset` is the position of the first token: 0, or pad id + 1."""

    model_type: str
    layers: int
    heads: int
    hidden: int
    vocabulary: int
    positions: int
    position_offset: int
    layer_norm_eps: float
    activation: str
    pad_id: int

    @classmethod
    def of(cls, config: Mapping[str, Any], shown_name: str) -> "EncoderConfig":
        """From a Hugging Face config.json. Raises `ModelInvalid` where a needed key is missing."""
        try:
            model_type = str(config["model_type"])
            pad_id = int(config.get("pad_token_id") or 0)
            return cls(
                model_type=model_type,
                layers=int(_stated(config, "num_hidden_layers", "n_layers")),
                heads=int(_stated(config, "num_attention_heads", "n_heads")),
                hidden=int(_stated(config, "hidden_size", "dim", "d_model")),
                vocabulary=int(config["vocab_size"]),
                positions=int(config["max_position_embeddings"]),
                position_offset=pad_id + 1 if model_type in _POSITIONS_AFTER_PADDING else 0,
                layer_norm_eps=float(
                    _stated(config, "layer_norm_eps", "norm_eps", "layer_norm_epsilon", default=1e-12)
                ),
                activation=str(_stated(config, "hidden_act", "hidden_activation", "activation", default="gelu")),
                pad_id=pad_id,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelInvalid(f"config of model {shown_name!r} lacks or garbles {error}; pull it again") from error

    @classmethod
    def of_folder(cls, folder: Path, shown_name: str) -> "EncoderConfig":
        return cls.of(read_config(folder), shown_name)

    @property
    def max_tokens(self) -> int:
        return self.positions - self.position_offset


def _stated(config: Mapping[str, Any], *names: str, default: object = None) -> Any:
    """The value under the first of `names` that is there: architectures call the same thing differently."""
    for name in names:
        if config.get(name) is not None:
            return config[name]
    if default is None:
        raise KeyError(names[0])
    return default


def read_config(folder: Path) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ModelInvalid(f"config of model {folder.name!r} cannot be read; pull the model again") from error


class Weights:
    """The tensors of a checkpoint, by name without the encoder's prefix, read when asked for (memory-mapped)."""

    def __init__(self, folder: Path) -> None:
        self._shown_name = folder.name
        try:
            self._file = safe_open(str(folder / WEIGHTS_FILE), framework="numpy")
            names = list(self._file.keys())
        except Exception as error:  # the library has an exception of its own without a stable base
            raise ModelInvalid(f"weights of model {folder.name!r} cannot be read; pull the model again") from error
        self._names = {_without_prefix(name): name for name in names}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def get(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.floating[Any]]:
        """The tensor `name`, as stored (f16 or f32). Raises `ModelInvalid` if missing, misshapen or not finite."""
        if name not in self._names:
            raise ModelInvalid(f"weights of model {self._shown_name!r} lack the tensor {name}")
        tensor = cast("npt.NDArray[Any]", self._file.get_tensor(self._names[name]))
        if tensor.shape != shape:
            raise ModelInvalid(
                f"tensor {name} of model {self._shown_name!r} has shape {tensor.shape}, its config says {shape}"
            )
        if tensor.dtype.name not in ("float16", "float32") or not np.isfinite(tensor).all():
            raise ModelInvalid(f"tensor {name} of model {self._shown_name!r} is not all finite f16 or f32")
        return tensor

    def head(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.floating[Any]]:
        """The matrix of an output: `get`, and `ModelInvalid` too where it is all zeros: the same for every text."""
        tensor = self.get(name, shape)
        if not tensor.any():
            raise ModelInvalid(f"tensor {name} of model {self._shown_name!r} is all zeros; pull it again")
        return tensor

    def rows(self, name: str, columns: int) -> npt.NDArray[np.floating[Any]]:
        """A matrix whose number of rows the tensor itself decides (feed-forward width, token types)."""
        if name not in self._names:
            raise ModelInvalid(f"weights of model {self._shown_name!r} lack the tensor {name}")
        shape = cast("list[int]", self._file.get_slice(self._names[name]).get_shape())
        return self.get(name, (shape[0] if shape else 0, columns))


def _without_prefix(name: str) -> str:
    for prefix in _ENCODER_PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name
