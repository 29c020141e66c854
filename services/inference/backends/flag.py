# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportPrivateImportUsage=false
"""Runs BGE-M3 and the BGE rerankers with FlagEmbedding, the library of their authors. The only file that imports it."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from FlagEmbedding.inference.embedder.encoder_only.m3 import M3Embedder
from FlagEmbedding.inference.reranker.encoder_only.base import BaseReranker

from services.inference.backend import OutOfMemory
from services.inference.backends.classifier import ClassifierHead
from services.inference.backends.heads import MULTI_VECTOR_HEAD, SPARSE_HEAD, Linear, TokenHeads
from services.inference.backends.packing import Packed
from services.inference.backends.rows import unit_rows
from services.inference.backends.torch import Precision, resolved
from services.inference.backends.torch_models import load_with_transformers
from services.inference.backends.torch_transfer import array
from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.checkpoint import CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE, EncoderConfig, Weights
from services.inference.errors import ModelInvalid
from services.inference.types import BatchOutput, IntArray, Output, TokenBatch

_ARCHITECTURES = ("bert", "roberta", "xlm-roberta")


class FlagBackend:
    """A model of the BGE family on one device, fed with the ids that our own tokenizer made."""

    def __init__(self, card: ModelCard, model: Any, device: torch.device, heads: TokenHeads, precision: str) -> None:
        self.card = card
        self.device = str(device)
        self.padding_free = False
        self.precision = precision
        self._device = device
        self._model = model
        self._heads = heads

    @classmethod
    def load(
        cls, folder: Path, card: ModelCard, *, device: str = "auto", precision: Precision = "auto"
    ) -> "FlagBackend":
        """From a folder of the store. Raises `ModelInvalid`, also for models that are not of the BGE family's shape."""
        _require_bge(card)
        chosen = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        # On a CPU the library computes in f32 by itself, whatever it is told.
        used = "f32" if chosen.type == "cpu" else resolved(precision, chosen)
        half, bf16 = used == "f16", used == "bf16"
        # The library makes up what a checkpoint lacks, so that is looked for here, before.
        weights, config = Weights(folder), EncoderConfig.of_folder(folder, card.name)
        heads = TokenHeads.of(folder, card, config, weights)
        if card.kind is ModelKind.RERANKER:
            ClassifierHead.of(weights, config.hidden)
        load_with_transformers(folder, card, torch.float32)
        with tempfile.TemporaryDirectory(prefix="pergamon-flag-") as scratch:
            staged = _stage(folder, Path(scratch), heads)
            if card.kind is ModelKind.RERANKER:
                model = BaseReranker(staged, use_fp16=half, devices=[str(chosen)]).model
                model = model.half() if half else model.bfloat16() if bf16 else model  # it knows no bf16 here itself
            else:
                model = M3Embedder(
                    staged, use_fp16=half, use_bf16=bf16, devices=[str(chosen)], pooling_method=card.pooling.lower(),
                    normalize_embeddings=False, colbert_dim=card.multi_vector_dimensions,
                ).model  # fmt: skip
        return cls(card, model.eval().to(chosen), chosen, heads, used)

    def run(self, batch: TokenBatch) -> BatchOutput:
        try:
            with torch.inference_mode():
                return self._logits(batch) if self.card.kind is ModelKind.RERANKER else self._vectors(batch)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise OutOfMemory(f"no memory for a batch of {batch.padded_tokens} tokens") from error

    def release_memory(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def close(self) -> None:
        del self._model
        self.release_memory()

    def _logits(self, batch: TokenBatch) -> BatchOutput:
        inputs = self._inputs(batch)
        if getattr(self._model.config, "type_vocab_size", 0) > 1:
            inputs["token_type_ids"] = self._tensor(batch.type_ids)
        return BatchOutput(logits=array(self._model(**inputs, return_dict=True).logits.view(-1)))

    def _vectors(self, batch: TokenBatch) -> BatchOutput:
        wants_sparse, wants_multi = (each in batch.outputs for each in (Output.SPARSE, Output.MULTI_VECTOR))
        found = self._model(
            self._inputs(batch), return_dense=Output.DENSE in batch.outputs, return_sparse=wants_sparse,
            return_colbert_vecs=wants_multi, return_sparse_embedding=False,
        )  # fmt: skip
        packed = Packed.of(batch)
        dense = unit_rows(array(found["dense_vecs"])) if Output.DENSE in batch.outputs else None
        sparse = multi_vector = None
        if wants_sparse:
            sparse = self._heads.terms(packed, array(found["sparse_vecs"]).reshape(-1)[packed.places])
        if wants_multi:
            rows = array(found["colbert_vecs"])
            multi_vector = tuple(
                unit_rows(matrix[: max(0, length - 1)])
                for matrix, length in zip(rows, packed.lengths.tolist(), strict=True)
            )
        return BatchOutput(dense=dense, sparse=sparse, multi_vector=multi_vector)

    def _inputs(self, batch: TokenBatch) -> dict[str, torch.Tensor]:
        return {"input_ids": self._tensor(batch.ids), "attention_mask": self._tensor(batch.mask)}

    def _tensor(self, values: IntArray) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device, torch.long)


def _require_bge(card: ModelCard) -> None:
    heads = {Output.SPARSE, Output.MULTI_VECTOR}
    is_m3 = card.kind is ModelKind.DENSE and set(card.extra_outputs) == heads and card.pooling is Pooling.CLS
    if card.architecture not in _ARCHITECTURES or not (is_m3 or card.kind is ModelKind.RERANKER):
        raise ModelInvalid(
            f"model {card.name!r} is neither a BGE-M3 nor a BGE reranker, which is what the flag backend runs: use the "
            "openvino or the torch backend"
        )


def _stage(folder: Path, scratch: Path, heads: TokenHeads) -> str:
    """The model as the library expects to find it; its own tokenizer is loaded there, and never used."""
    for name in (CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE):
        (scratch / name).symlink_to((folder / name).resolve())
    (scratch / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    for name, head in ((SPARSE_HEAD, heads.sparse), (MULTI_VECTOR_HEAD, heads.multi_vector)):
        if head is not None:
            torch.save(_state(head), scratch / f"{name}.pt")
    return str(scratch)


def _state(head: Linear) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(part)) for name, part in (("weight", head.weight), ("bias", head.bias))}
