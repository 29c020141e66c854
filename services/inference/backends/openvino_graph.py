# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false, reportAttributeAccessIssue=false
"""BERT and XLM-RoBERTa as OpenVINO graphs, built from their tensors.

The encoder is that of Devlin et al. 2018 (arXiv:1810.04805); XLM-RoBERTa (arXiv:1911.02116) differs in where
positions start and in its heads. Inputs are ids, mask and type ids, int32 [n, t] with n and t free; a model with
vectors for late interaction has a fourth, int32 [k]: the tokens to compute them of, as indices into [n * t].
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset15 as ops

from services.inference.backends.heads import Linear, TokenHeads, reads_first_only
from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.checkpoint import EncoderConfig, Weights
from services.inference.errors import ModelInvalid

Node: TypeAlias = ov.Node
SUPPORTED_ARCHITECTURES = ("bert", "roberta", "xlm-roberta")

#: Columns of the vocabulary projected at once: bounds the [n, t, columns] intermediate of the sparse head.
_VOCABULARY_SLICE = 4096


def build_model(card: ModelCard, config: EncoderConfig, weights: Weights, heads: TokenHeads) -> ov.Model:
    """The graph of `card`'s kind: [n, hidden] (DENSE, not normalised, and RERANKER) or [n, terms] (SPARSE).

    Behind that, as far as there are `heads` for them: the lexical weights of all tokens [n, t], and the vectors of the
    tokens asked for [k, dimensions], not normalised. With k = 0 they cost nothing.
    """
    if config.model_type not in SUPPORTED_ARCHITECTURES or config.activation not in ("gelu", "relu", "gelu_new"):
        raise ModelInvalid(
            f"model {card.name!r} is a {config.model_type} with {config.activation}; the OpenVINO backend runs "
            f"{', '.join(SUPPORTED_ARCHITECTURES)} with gelu or relu: use the torch backend"
        )
    return _Builder(card, config, weights).build(heads)


class _Builder:
    def __init__(self, card: ModelCard, config: EncoderConfig, weights: Weights) -> None:
        self._card = card
        self._config = config
        self._weights = weights
        self._ids = ops.parameter([-1, -1], np.int32, name="ids")
        self._mask = ops.parameter([-1, -1], np.int32, name="mask")
        self._type_ids = ops.parameter([-1, -1], np.int32, name="type_ids")
        self._mask_f32 = ops.convert(self._mask, "f32")
        self._first_only = reads_first_only(card)

    def build(self, heads: TokenHeads) -> ov.Model:
        hidden = self._encoder()
        match self._card.kind:
            case ModelKind.DENSE:
                output = self._pool(hidden)
            case ModelKind.RERANKER:
                output = self._first(hidden)  # the head is in `classifier`
            case ModelKind.SPARSE:
                output = self._term_weights(hidden)
        outputs, inputs = [output], [self._ids, self._mask, self._type_ids]
        if heads.sparse is not None:
            outputs.append(ops.squeeze(ops.relu(_linear(hidden, heads.sparse)), _axes(2)))
        if heads.multi_vector is not None:
            tokens = ops.parameter([-1], np.int32, name="tokens")
            inputs.append(tokens)
            rows = ops.reshape(hidden, _axes(-1, self._config.hidden), False)
            outputs.append(_linear(ops.gather(rows, tokens, _integer(0)), heads.multi_vector))
        return ov.Model([ops.result(each) for each in outputs], inputs, self._card.name)  # pyright: ignore[reportGeneralTypeIssues]

    # --- encoder

    def _encoder(self) -> Node:
        # A key that is padding gets the most negative bias that survives bf16, so that softmax gives it zero.
        bias = ops.unsqueeze(ops.multiply(ops.subtract(_scalar(1.0), self._mask_f32), _scalar(-30000.0)), _axes(1, 2))
        hidden = self._embeddings()
        last = self._config.layers - 1
        for layer in range(self._config.layers):
            asking = self._first_of(hidden) if layer == last and self._first_only else hidden
            hidden = self._layer(asking, hidden, bias, f"encoder.layer.{layer}")
        return hidden

    def _embeddings(self) -> Node:
        size = self._config.hidden
        # Counting real tokens gives positions from 1; XLM-R adds its pad id, BERT starts from 0.
        counted = ops.multiply(ops.cum_sum(self._mask, _integer(1)), self._mask)
        positions = ops.maximum(ops.add(counted, _integer(self._config.position_offset - 1)), _integer(0))
        types = self._weights.rows("embeddings.token_type_embeddings.weight", size)
        type_ids = self._type_ids if types.shape[0] > 1 else ops.multiply(self._type_ids, _integer(0))
        summed = ops.add(
            self._lookup("embeddings.word_embeddings.weight", self._config.vocabulary, self._ids),
            self._lookup("embeddings.position_embeddings.weight", self._config.positions, positions),
        )
        summed = ops.add(summed, _gather(types, type_ids))
        return self._layer_norm(summed, "embeddings.LayerNorm")

    def _lookup(self, name: str, rows: int, indices: Node) -> Node:
        return _gather(self._weights.get(name, (rows, self._config.hidden)), indices)

    def _layer(self, asking: Node, hidden: Node, bias: Node, at: str) -> Node:
        """The next states of the tokens `asking`, all of `hidden` or the first of each text, which look at all."""
        size, heads = self._config.hidden, self._config.heads
        query, key, value = (
            self._split_heads(self._dense(tokens, f"{at}.attention.self.{part}", size, size))
            for part, tokens in (("query", asking), ("key", hidden), ("value", hidden))
        )
        attended = ops.scaled_dot_product_attention(query, key, value, bias)
        merged = ops.reshape(ops.transpose(attended, _axes(0, 2, 1, 3)), _axes(0, 0, heads * (size // heads)), True)
        attention = self._dense(merged, f"{at}.attention.output.dense", size, size)
        hidden = self._layer_norm(ops.add(attention, asking), f"{at}.attention.output.LayerNorm")
        wide = self._weights.rows(f"{at}.intermediate.dense.weight", size).shape[0]
        inner = self._activate(self._dense(hidden, f"{at}.intermediate.dense", wide, size))
        outer = self._dense(inner, f"{at}.output.dense", size, wide)
        return self._layer_norm(ops.add(outer, hidden), f"{at}.output.LayerNorm")

    def _split_heads(self, tensor: Node) -> Node:
        heads = self._config.heads
        split = ops.reshape(tensor, _axes(0, 0, heads, self._config.hidden // heads), True)
        return ops.transpose(split, _axes(0, 2, 1, 3))

    # --- heads

    def _pool(self, hidden: Node) -> Node:
        if self._card.pooling is Pooling.CLS:
            return self._first(hidden)
        weights = ops.unsqueeze(self._mask_f32, _axes(2))
        total = ops.reduce_sum(ops.multiply(hidden, weights), _axes(1))
        return ops.divide(total, ops.maximum(ops.reduce_sum(weights, _axes(1)), _scalar(1.0)))

    def _term_weights(self, hidden: Node) -> Node:
        """SPLADE (arXiv:2109.10086): log(1 + relu(x)) of the masked-LM logits, maximum over the real tokens."""
        size, vocabulary = self._config.hidden, self._config.vocabulary
        roberta = "lm_head.dense.weight" in self._weights
        at, norm = ("lm_head", "lm_head.layer_norm") if roberta else (
            "cls.predictions.transform", "cls.predictions.transform.LayerNorm"
        )  # fmt: skip
        transformed = self._layer_norm(
            self._activate(self._dense(hidden, f"{at}.dense", size, size), gelu=roberta), norm
        )
        head = "lm_head" if roberta else "cls.predictions"
        decoder = f"{head}.decoder.weight"
        if decoder not in self._weights:  # tied to the input embeddings, and then not stored twice
            decoder = "embeddings.word_embeddings.weight"
        matrix = self._weights.head(decoder, (vocabulary, size))
        bias_name = f"{head}.bias" if f"{head}.bias" in self._weights else f"{head}.decoder.bias"
        bias = self._weights.get(bias_name, (vocabulary,))
        weights = ops.unsqueeze(self._mask_f32, _axes(2))
        parts: list[Node] = []
        for start in range(0, vocabulary, _VOCABULARY_SLICE):
            end = min(vocabulary, start + _VOCABULARY_SLICE)
            logits = ops.add(
                ops.matmul(transformed, _constant(matrix[start:end]), False, True), _constant(bias[start:end])
            )
            parts.append(ops.reduce_max(ops.multiply(ops.relu(logits), weights), _axes(1)))
        return ops.log(ops.add(ops.concat(parts, 1), _scalar(1.0)))

    # --- pieces

    def _first(self, hidden: Node) -> Node:
        return ops.gather(hidden, _integer(0), _integer(1))

    def _first_of(self, hidden: Node) -> Node:
        """As `_first`, but still with an axis of tokens."""
        return ops.gather(hidden, _axes(0), _integer(1))

    def _dense(self, tensor: Node, at: str, rows: int, columns: int) -> Node:
        matrix = _constant(self._weights.get(f"{at}.weight", (rows, columns)))
        return ops.add(ops.matmul(tensor, matrix, False, True), _constant(self._weights.get(f"{at}.bias", (rows,))))

    def _layer_norm(self, tensor: Node, at: str) -> Node:
        size = self._config.hidden
        normal = ops.mvn(tensor, _axes(-1), True, self._config.layer_norm_eps, "INSIDE_SQRT")
        scaled = ops.multiply(normal, _constant(self._weights.get(f"{at}.weight", (size,))))
        return ops.add(scaled, _constant(self._weights.get(f"{at}.bias", (size,))))

    def _activate(self, tensor: Node, *, gelu: bool = False) -> Node:
        if self._config.activation == "relu" and not gelu:
            return ops.relu(tensor)
        return ops.gelu(tensor, "tanh" if self._config.activation == "gelu_new" and not gelu else "erf")


def _linear(tensor: Node, head: Linear) -> Node:
    return ops.add(ops.matmul(tensor, _constant(head.weight), False, True), _constant(head.bias))


def _constant(tensor: npt.NDArray[np.floating]) -> Node:
    if tensor.ndim < 2 or tensor.dtype != np.float16:
        return ops.constant(np.ascontiguousarray(tensor, np.float32))
    wide = ops.convert(ops.constant(np.ascontiguousarray(tensor)), "f32")
    # Marked as in models saved with compression: the compiler then keeps the f16 where widening it early gains nothing.
    wide.get_rt_info()["decompression"] = ""
    return wide


def _gather(table: npt.NDArray[np.floating], indices: Node) -> Node:
    return ops.gather(_constant(table), indices, _integer(0))


def _scalar(value: float) -> Node:
    return ops.constant(np.float32(value))


def _integer(value: int) -> Node:
    return ops.constant(np.int32(value))


def _axes(*values: int) -> Node:
    return ops.constant(np.array(values, np.int32))
