# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportPrivateImportUsage=false, reportMissingTypeArgument=false
"""The two ways in which torch runs a model: our own encoder without padding, or whatever transformers loads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from services.inference.backends.classifier import ClassifierHead
from services.inference.backends.heads import Linear, TokenHeads, matrices, reads_first_only, scored_tokens
from services.inference.backends.packing import Packed
from services.inference.backends.rows import sparse_rows, unit_rows
from services.inference.backends.torch_encoder import Dense, Norm, PackedEncoder, Tensor, Tensors, Texts
from services.inference.backends.torch_graphs import MAX_TEXTS, Encode, SmallBatches, proven, record_on_cuda
from services.inference.backends.torch_transfer import Uploader, array
from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.checkpoint import EncoderConfig, Weights
from services.inference.errors import ModelInvalid
from services.inference.types import BatchOutput, Output, TokenBatch

_CLASSES = {
    ModelKind.DENSE: AutoModel,
    ModelKind.RERANKER: AutoModelForSequenceClassification,
    ModelKind.SPARSE: AutoModelForMaskedLM,
}
#: How the names of heads begin in the models of transformers.
_HEADS = ("classifier", "score", "lm_head", "cls.")
#: Columns of the vocabulary projected at once: bounds the [tokens, columns] intermediate of the sparse head.
_VOCABULARY_SLICE = 4096


class TorchModel(Protocol):
    padding_free: bool

    def run(self, batch: TokenBatch) -> BatchOutput: ...

    def release_memory(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Place:
    """Where and how a model computes."""

    device: torch.device
    dtype: torch.dtype
    uploader: Uploader


class PackedModel:
    """A BERT or XLM-RoBERTa of any kind. Nothing is computed for padding."""

    padding_free = True

    def __init__(self, folder: Path, card: ModelCard, place: _Place) -> None:
        self._card = card
        self._first_only = reads_first_only(card)
        self._uploader = place.uploader
        weights = Weights(folder)
        config = self._config = EncoderConfig.of_folder(folder, card.name)
        tensors = Tensors(weights, config, place.device, place.dtype)
        encoder = PackedEncoder(tensors, first_only=self._first_only)
        self._small: SmallBatches | None = None
        if place.device.type == "cuda":
            self._small = proven(encoder, record_on_cuda, self._example)
        self._encode: Encode = self._small or encoder
        self._classifier = ClassifierHead.of(weights, config.hidden) if card.kind is ModelKind.RERANKER else None
        self._terms = _TermHead(tensors, encoder.words) if card.kind is ModelKind.SPARSE else None
        self._heads = _DeviceHeads(TokenHeads.of(folder, card, config, weights), place)

    def run(self, batch: TokenBatch) -> BatchOutput:
        packed = Packed.of(batch)
        texts = self._uploader.texts(packed, self._config)
        hidden = self._encode(texts)
        match self._card.kind:
            case ModelKind.DENSE:
                pooled = hidden if self._first_only else _pooled(self._card, hidden, texts.bounds)
                return self._heads.outputs(batch, packed, hidden, pooled)
            case ModelKind.RERANKER:
                assert self._classifier is not None
                return BatchOutput(logits=self._classifier.logits(array(hidden)))
            case ModelKind.SPARSE:
                assert self._terms is not None
                return BatchOutput(sparse=sparse_rows(array(self._terms(hidden, texts))))

    def release_memory(self) -> None:
        if self._small is not None:
            self._small.forget()

    def _example(self, tokens: int) -> Texts:
        """Texts of `tokens` padding ids together, as short and as equal as can be."""
        lengths = [len(part) for part in np.array_split(np.zeros(tokens), min(tokens, MAX_TEXTS))]
        ids = np.full(tokens, self._config.pad_id, np.int32)
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        packed = Packed(ids=ids, type_ids=np.zeros_like(ids), places=np.arange(tokens, dtype=np.int32), bounds=bounds)
        return self._uploader.texts(packed, self._config)


class AutoTorchModel:
    """Any encoder that transformers knows, with padding."""

    padding_free = False

    def __init__(self, folder: Path, card: ModelCard, place: _Place) -> None:
        self._card = card
        self._device = place.device
        self._model = load_with_transformers(folder, card, place.dtype).eval().to(place.device)
        self._has_type_ids = getattr(self._model.config, "type_vocab_size", 0) > 1
        if card.kind is ModelKind.RERANKER:
            _widen_head(self._model)
        config = EncoderConfig.of_folder(folder, card.name) if card.extra_outputs else None
        self._heads = _DeviceHeads(
            TokenHeads.none() if config is None else TokenHeads.of(folder, card, config, Weights(folder)), place
        )

    def run(self, batch: TokenBatch) -> BatchOutput:
        mask = self._tensor(batch.mask)
        inputs = {"input_ids": self._tensor(batch.ids), "attention_mask": mask}
        if self._has_type_ids:
            inputs["token_type_ids"] = self._tensor(batch.type_ids)
        output = self._model(**inputs)
        match self._card.kind:
            case ModelKind.DENSE:
                packed = Packed.of(batch)
                hidden = output.last_hidden_state[mask.bool()]
                bounds = torch.from_numpy(packed.bounds).to(self._device)
                return self._heads.outputs(batch, packed, hidden, _pooled(self._card, hidden, bounds))
            case ModelKind.RERANKER:
                return BatchOutput(logits=array(output.logits[:, 0]))
            case ModelKind.SPARSE:
                logits = output.logits.float().masked_fill(mask.unsqueeze(-1) == 0, float("-inf"))
                return BatchOutput(sparse=sparse_rows(array(torch.log1p(torch.relu(logits.amax(dim=1))))))

    def release_memory(self) -> None: ...

    def _tensor(self, values: Any) -> Tensor:
        return torch.from_numpy(values).to(self._device, torch.long)


class _DeviceHeads:
    """What a dense model hands out of its hidden states; the heads of `TokenHeads` on the device."""

    def __init__(self, heads: TokenHeads, place: _Place) -> None:
        self._heads = heads
        self._sparse = _on_device(heads.sparse, place)
        self._multi_vector = _on_device(heads.multi_vector, place)

    def outputs(self, batch: TokenBatch, packed: Packed, hidden: Tensor, pooled: Tensor) -> BatchOutput:
        """Those of the batch's outputs that there are heads for; only they are computed and copied."""
        dense = sparse = multi_vector = None
        if Output.DENSE in batch.outputs:
            dense = unit_rows(array(pooled))
        if Output.SPARSE in batch.outputs and self._sparse is not None:
            sparse = self._heads.terms(packed, array(torch.relu(self._sparse(hidden))[:, 0]))
        if Output.MULTI_VECTOR in batch.outputs and self._multi_vector is not None:
            rows = torch.from_numpy(scored_tokens(packed)).to(hidden.device)
            multi_vector = matrices(packed, array(self._multi_vector(hidden[rows])))
        return BatchOutput(dense=dense, sparse=sparse, multi_vector=multi_vector)


class _TermHead:
    """SPLADE (arXiv:2109.10086): log(1 + relu(x)) of the masked-LM logits, maximum over the tokens of a text."""

    def __init__(self, tensors: Tensors, words: Tensor) -> None:
        weights, size, vocabulary = tensors.weights, tensors.config.hidden, tensors.config.vocabulary
        roberta = "lm_head.dense.weight" in weights
        head = "lm_head" if roberta else "cls.predictions"
        at = "lm_head" if roberta else "cls.predictions.transform"
        self._dense: Dense = tensors.dense(f"{at}.dense", size, size)
        self._norm: Norm = tensors.norm("lm_head.layer_norm" if roberta else f"{at}.LayerNorm")
        self._activate = functional.relu if tensors.config.activation == "relu" and not roberta else functional.gelu
        decoder = f"{head}.decoder.weight"
        # Tied to the input embeddings, and then not stored twice.
        self._matrix = tensors.put(weights.head(decoder, (vocabulary, size))) if decoder in weights else words
        bias = f"{head}.bias" if f"{head}.bias" in weights else f"{head}.decoder.bias"
        self._bias = tensors.put(weights.get(bias, (vocabulary,)))

    def __call__(self, hidden: Tensor, texts: Texts) -> Tensor:
        """float32 [texts, terms]."""
        hidden = self._norm(self._activate(self._dense(hidden)))
        parts: list[Tensor] = []
        for start in range(0, len(self._bias), _VOCABULARY_SLICE):
            rows = slice(start, start + _VOCABULARY_SLICE)
            logits = functional.linear(hidden, self._matrix[rows], self._bias[rows]).float()
            parts.append(torch.segment_reduce(logits, "max", offsets=texts.bounds, axis=0))
        return torch.log1p(torch.relu(torch.cat(parts, dim=1)))


def load_model(folder: Path, card: ModelCard, *, device: torch.device, dtype: torch.dtype, packed: bool) -> TorchModel:
    """Our own encoder where it knows the architecture and `packed` does not forbid it. Raises `ModelInvalid`."""
    place = _Place(device=device, dtype=dtype, uploader=Uploader(device))
    return PackedModel(folder, card, place) if packed else AutoTorchModel(folder, card, place)


def load_with_transformers(folder: Path, card: ModelCard, dtype: torch.dtype) -> Any:
    """Nothing is downloaded and no code of the model is run. Raises `ModelInvalid`, also where a tensor is missing."""
    try:
        model, report = _CLASSES[card.kind].from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=dtype,
            output_loading_info=True,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelInvalid(f"model {card.name!r} cannot be loaded by transformers: {type(error).__name__}") from error
    # The pooler of a dense model is made up by transformers where the checkpoint has none; nothing here uses it.
    missing = sorted(
        n for n in report["missing_keys"] if not (card.kind is ModelKind.DENSE and n.startswith("pooler."))
    )
    if missing:
        raise ModelInvalid(f"weights of model {card.name!r} lack {', '.join(missing[:5])}; pull it again")
    for name, tensor in model.named_parameters():
        if name.startswith(_HEADS) and name.endswith("weight") and not tensor.any():
            raise ModelInvalid(f"tensor {name} of model {card.name!r} is all zeros; pull it again")
    return model


def _pooled(card: ModelCard, hidden: Tensor, bounds: Tensor) -> Tensor:
    if card.pooling is Pooling.CLS:
        return hidden[bounds[:-1]]
    return torch.segment_reduce(hidden.float(), "mean", offsets=bounds, axis=0)


def _on_device(head: Linear | None, place: _Place) -> Dense | None:
    if head is None:
        return None
    return Dense(*(torch.from_numpy(part).to(place.device, place.dtype) for part in (head.weight, head.bias)))


def _widen_head(model: Any) -> None:
    """Compute the classifier in f32: in bf16 logits near 11 come in steps of 0.06, and different passages would tie."""
    head = getattr(model, "classifier", None)
    if isinstance(head, torch.nn.Module):
        head.float()
        head.register_forward_pre_hook(lambda _, inputs: tuple(tensor.float() for tensor in inputs))
