# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportPrivateImportUsage=false
"""BERT and XLM-RoBERTa in torch without padding: the tokens of a batch end to end, attention within each text.

The encoder is that of Devlin et al. 2018 (arXiv:1810.04805); XLM-RoBERTa (arXiv:1911.02116) differs in where
positions start. On a GPU attention is FlashAttention over texts of any length (arXiv:2307.08691), as torch ships it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from services.inference.backends.packing import Run
from services.inference.checkpoint import EncoderConfig, Weights
from services.inference.errors import ModelInvalid

Tensor: TypeAlias = torch.Tensor
PACKED_ARCHITECTURES = ("bert", "roberta", "xlm-roberta")
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": lambda tensor: functional.gelu(tensor, approximate="tanh"),
    "relu": functional.relu,
}
#: What the kernels of FlashAttention take.
_FLASH_CAPABILITY, _FLASH_HEAD_MAX, _FLASH_HEAD_STEP = (8, 0), 256, 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Texts:
    """A batch on the device: `ids`, `positions` and `type_ids` int32 [tokens], text i is `bounds[i]:bounds[i + 1]`.

    On the host: `runs` are neighbouring texts of equal length, `longest` is the most tokens a text has.
    """

    ids: Tensor
    positions: Tensor
    type_ids: Tensor
    bounds: Tensor
    runs: list[Run]
    longest: int


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """A linear layer: [out, in] and [out] in the precision of the encoder."""

    weight: Tensor
    bias: Tensor

    def __call__(self, tensor: Tensor) -> Tensor:
        return functional.linear(tensor, self.weight, self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    weight: Tensor
    bias: Tensor
    epsilon: float

    def __call__(self, tensor: Tensor) -> Tensor:
        return functional.layer_norm(tensor, self.weight.shape, self.weight, self.bias, self.epsilon)


class Tensors:
    """Puts the tensors of a checkpoint on a device in one precision. Raises `ModelInvalid` as `Weights` does."""

    def __init__(self, weights: Weights, config: EncoderConfig, device: torch.device, dtype: torch.dtype) -> None:
        self.weights = weights
        self.config = config
        self.device = device
        self._dtype = dtype

    def put(self, array: npt.NDArray[np.floating]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, self._dtype)

    def dense(self, at: str, rows: int, columns: int) -> Dense:
        weight = self.weights.get(f"{at}.weight", (rows, columns))
        return Dense(self.put(weight), self.put(self.weights.get(f"{at}.bias", (rows,))))

    def norm(self, at: str) -> Norm:
        size = (self.config.hidden,)
        weight, bias = self.weights.get(f"{at}.weight", size), self.weights.get(f"{at}.bias", size)
        return Norm(self.put(weight), self.put(bias), self.config.layer_norm_eps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layer:
    joined: Dense  # query, key and value in one product
    attention_out: Dense
    attention_norm: Norm
    inner: Dense
    outer: Dense
    norm: Norm


class PackedEncoder:
    """From `Texts` to the last hidden states [tokens, hidden], or, `first_only`, to those of first tokens [n, hidden].

    Then nothing else of the last layer is computed but what the first tokens look at.
    """

    def __init__(self, tensors: Tensors, *, first_only: bool) -> None:
        self.first_only = first_only
        config, weights = tensors.config, tensors.weights
        if config.activation not in _ACTIVATIONS:
            raise ModelInvalid(f"activation {config.activation!r} is none of {', '.join(sorted(_ACTIVATIONS))}")
        self._heads = config.heads
        self._activate = _ACTIVATIONS[config.activation]
        at = "embeddings"
        self._words = tensors.put(weights.get(f"{at}.word_embeddings.weight", (config.vocabulary, config.hidden)))
        self._places = tensors.put(weights.get(f"{at}.position_embeddings.weight", (config.positions, config.hidden)))
        self._types = tensors.put(weights.rows(f"{at}.token_type_embeddings.weight", config.hidden))
        self._norm = tensors.norm(f"{at}.LayerNorm")
        self._layers = [_layer(tensors, f"encoder.layer.{i}") for i in range(config.layers)]
        self._attend = _attention_for(self._words, config.hidden // config.heads)

    @property
    def words(self) -> Tensor:
        """The input embeddings, to which the head of a masked-language model may be tied."""
        return self._words

    def __call__(self, texts: Texts) -> Tensor:
        hidden = functional.embedding(texts.ids, self._words) + functional.embedding(texts.positions, self._places)
        types = texts.type_ids if self._types.shape[0] > 1 else torch.zeros_like(texts.type_ids)
        hidden = self._norm(hidden + functional.embedding(types, self._types))
        for layer in self._layers[:-1]:
            hidden = self._apply(layer, hidden, texts, first_only=False)
        return self._apply(self._layers[-1], hidden, texts, first_only=self.first_only)

    def _apply(self, layer: _Layer, hidden: Tensor, texts: Texts, *, first_only: bool) -> Tensor:
        size = hidden.shape[1]
        query, key, value = layer.joined(hidden).view(-1, 3, self._heads, size // self._heads).unbind(1)
        if first_only:
            first = texts.bounds[:-1]
            query, hidden = query[first], hidden[first]
        attended = self._attend(query, key, value, texts).reshape(-1, size)
        hidden = layer.attention_norm(layer.attention_out(attended) + hidden)
        return layer.norm(layer.outer(self._activate(layer.inner(hidden))) + hidden)


def _layer(tensors: Tensors, at: str) -> _Layer:
    size = tensors.config.hidden
    parts = [tensors.dense(f"{at}.attention.self.{part}", size, size) for part in ("query", "key", "value")]
    wide = tensors.weights.rows(f"{at}.intermediate.dense.weight", size).shape[0]
    return _Layer(
        joined=Dense(torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])),
        attention_out=tensors.dense(f"{at}.attention.output.dense", size, size),
        attention_norm=tensors.norm(f"{at}.attention.output.LayerNorm"),
        inner=tensors.dense(f"{at}.intermediate.dense", wide, size),
        outer=tensors.dense(f"{at}.output.dense", size, wide),
        norm=tensors.norm(f"{at}.output.LayerNorm"),
    )


#: (query [tokens or texts, heads, size], key, value [tokens, heads, size], texts) -> as query
_Attention: TypeAlias = Callable[[Tensor, Tensor, Tensor, Texts], Tensor]


def _attention_for(example: Tensor, head_size: int) -> _Attention:
    if (
        example.is_cuda
        and example.dtype in (torch.bfloat16, torch.float16)
        and torch.cuda.get_device_capability(example.device) >= _FLASH_CAPABILITY
        and head_size <= _FLASH_HEAD_MAX
        and head_size % _FLASH_HEAD_STEP == 0
    ):
        return _flash
    return _by_runs


def _flash(query: Tensor, key: Tensor, value: Tensor, texts: Texts) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    bounds, longest = texts.bounds, texts.longest
    if query.shape[0] != key.shape[0]:  # one query a text; of texts of one token each both are the same
        bounds, longest = torch.arange(len(texts.bounds), dtype=torch.int32, device=query.device), 1
    attended = varlen_attn(query, key, value, bounds, texts.bounds, longest, texts.longest)
    assert isinstance(attended, torch.Tensor)
    return attended


def _by_runs(query: Tensor, key: Tensor, value: Tensor, texts: Texts) -> Tensor:
    """Neighbours of equal length in one call: the batcher sorts by length, so that they are few."""
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    first_only = query.shape[0] != key.shape[0]
    for run in texts.runs:
        rows = slice(run.first_token, run.first_token + run.texts * run.length)
        asking = slice(run.first_text, run.first_text + run.texts) if first_only else rows
        split = [
            each[part].unflatten(0, (run.texts, -1)).transpose(1, 2)
            for each, part in ((query, asking), (key, rows), (value, rows))
        ]
        attended = functional.scaled_dot_product_attention(split[0], split[1], split[2])
        out[asking] = attended.transpose(1, 2).flatten(0, 1)
    return out
