"""Builders for tests of inference: tiny models with random weights, a word tokenizer, and a backend under control."""

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from services.inference.backends.fake import FakeBackend
from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.types import BatchOutput, Encoded, Output, TokenBatch

WORDS = tuple(f"w{i}" for i in range(90))
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_seeds = itertools.count(1_000)
DENSE = frozenset({Output.DENSE})
VOCABULARY = len(_SPECIALS) + len(WORDS)
HIDDEN, HEADS, INNER, LAYERS, POSITIONS = 32, 4, 48, 2, 66
MULTI = 24


def word_tokenizer() -> Tokenizer:
    """One token a word of `WORDS`; pairs as [CLS] a [SEP] b [SEP] with type 1 on the second half."""
    vocabulary = {word: i for i, word in enumerate((*_SPECIALS, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def card(kind: ModelKind = ModelKind.DENSE, **changes: Any) -> ModelCard:
    values: dict[str, Any] = {
        "name": "tiny", "kind": kind, "architecture": "bert", "max_tokens": 64,
        "dimensions": {ModelKind.DENSE: HIDDEN, ModelKind.RERANKER: 1, ModelKind.SPARSE: VOCABULARY}[kind],
        "pooling": Pooling.MEAN if kind is ModelKind.DENSE else Pooling.NONE,
    }  # fmt: skip
    return ModelCard(**values | changes)


def m3_card(**changes: Any) -> ModelCard:
    """The shape of BGE-M3: XLM-RoBERTa, first token, and both heads in the same pass."""
    values: dict[str, Any] = {
        "architecture": "xlm-roberta", "pooling": Pooling.CLS, "multi_vector_dimensions": MULTI,
        "extra_outputs": (Output.SPARSE, Output.MULTI_VECTOR),
    }  # fmt: skip
    return card(**values | changes)


def encoded(*ids: int) -> Encoded:
    return Encoded(ids=np.array(ids, np.int32), type_ids=np.zeros(len(ids), np.int32))


def of_length(tokens: int, seed: int | None = None) -> Encoded:
    """Random ids; without a `seed` other ones every time, since equal texts in flight are computed once."""
    rng = np.random.default_rng((tokens, next(_seeds) if seed is None else seed))
    return encoded(2, *(int(i) for i in rng.integers(4, VOCABULARY, tokens - 2)), 3)


def write_tiny_model(folder: Path, model_card: ModelCard, *, named_specials: bool = False) -> ModelCard:
    """A checkpoint of `model_card`'s kind and architecture with random weights, as Hugging Face would lay it out.

    `named_specials` adds the tokenizer_config.json that other libraries want and ours do not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    roberta = model_card.architecture == "xlm-roberta"
    head = {ModelKind.DENSE: "Model", ModelKind.RERANKER: "ForSequenceClassification", ModelKind.SPARSE: "ForMaskedLM"}
    config = {
        "model_type": model_card.architecture,
        "architectures": [("XLMRoberta" if roberta else "Bert") + head[model_card.kind]],
        "hidden_act": "gelu", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "intermediate_size": INNER, "vocab_size": VOCABULARY,
        "max_position_embeddings": POSITIONS + (2 if roberta else 0),
        "type_vocab_size": 1 if roberta else 2, "layer_norm_eps": 1e-5 if roberta else 1e-12,
        "pad_token_id": 1 if roberta else 0, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(word_tokenizer().to_str())
    if named_specials:
        names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "eos_token": "[SEP]"}
        names |= {"pad_token": "[PAD]", "unk_token": "[UNK]", "tokenizer_class": "PreTrainedTokenizerFast"}
        (folder / "tokenizer_config.json").write_text(json.dumps(names))
    tensors = _tensors(model_card.kind, roberta=roberta) | _token_heads(model_card)
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return model_card


def write_published_m3(folder: Path) -> Path:
    """The files of BGE-M3 as its authors publish them, tiny: the encoder as a pickle, and a pickle a head."""
    import torch

    write_tiny_model(folder, m3_card(multi_vector_dimensions=HIDDEN), named_specials=True)
    tensors = load_file(str(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    for head in ("sparse_linear", "colbert_linear"):
        state = {part: torch.from_numpy(tensors.pop(f"{head}.{part}")) for part in ("weight", "bias")}
        torch.save(state, folder / f"{head}.pt")
    torch.save({name: torch.from_numpy(tensor) for name, tensor in tensors.items()}, folder / "pytorch_model.bin")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    return folder


def damage_tensor(folder: Path, name: str, damage: Callable[[np.ndarray], np.ndarray | None]) -> None:
    """Change the tensor of `folder`'s checkpoint that ends in `name`, or take it out where `damage` gives None."""
    path = folder / "model.safetensors"
    tensors = load_file(str(path))
    found = next(key for key in tensors if key.endswith(name))
    changed = damage(tensors.pop(found))
    save_file(tensors if changed is None else tensors | {found: changed}, str(path), metadata={"format": "pt"})


def _tensors(kind: ModelKind, *, roberta: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    out: dict[str, np.ndarray] = {}
    prefix = "" if kind is ModelKind.DENSE else "roberta." if roberta else "bert."

    def add(name: str, *shape: int, scale: float = 0.3) -> None:
        out[name] = (rng.standard_normal(shape) * scale).astype(np.float32)

    def linear(name: str, rows: int, columns: int) -> None:
        add(f"{name}.weight", rows, columns)
        add(f"{name}.bias", rows)

    def norm(name: str) -> None:
        add(f"{name}.bias", HIDDEN)
        out[f"{name}.weight"] = (1 + rng.standard_normal(HIDDEN) * 0.2).astype(np.float32)

    add(f"{prefix}embeddings.word_embeddings.weight", VOCABULARY, HIDDEN, scale=1.0)
    add(f"{prefix}embeddings.position_embeddings.weight", POSITIONS + (2 if roberta else 0), HIDDEN)
    add(f"{prefix}embeddings.token_type_embeddings.weight", 1 if roberta else 2, HIDDEN)
    norm(f"{prefix}embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"{prefix}encoder.layer.{layer}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            linear(f"{at}.{part}", HIDDEN, HIDDEN)
        norm(f"{at}.attention.output.LayerNorm")
        linear(f"{at}.intermediate.dense", INNER, HIDDEN)
        linear(f"{at}.output.dense", HIDDEN, INNER)
        norm(f"{at}.output.LayerNorm")
    if kind is ModelKind.RERANKER and roberta:
        linear("classifier.dense", HIDDEN, HIDDEN)
        linear("classifier.out_proj", 1, HIDDEN)
    elif kind is ModelKind.RERANKER:
        linear("bert.pooler.dense", HIDDEN, HIDDEN)
        linear("classifier", 1, HIDDEN)
    elif kind is ModelKind.SPARSE and roberta:
        linear("lm_head.dense", HIDDEN, HIDDEN)
        norm("lm_head.layer_norm")
        add("lm_head.bias", VOCABULARY)
    elif kind is ModelKind.SPARSE:
        linear("cls.predictions.transform.dense", HIDDEN, HIDDEN)
        norm("cls.predictions.transform.LayerNorm")
        add("cls.predictions.bias", VOCABULARY)
    return out


def _token_heads(model_card: ModelCard) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    wide = model_card.multi_vector_dimensions
    rows = {Output.SPARSE: ("sparse_linear", 1), Output.MULTI_VECTOR: ("colbert_linear", wide)}
    out: dict[str, np.ndarray] = {}
    for output in model_card.extra_outputs:
        name, size = rows[output]
        out[f"{name}.weight"] = rng.standard_normal((size, HIDDEN)).astype(np.float32)
        out[f"{name}.bias"] = rng.standard_normal(size).astype(np.float32) + (6 if size == 1 else 0)
    return out


class GatedBackend:
    """A fake device that stops before every pass until let go, and remembers the passes it was given.

    `step()` lets one pass through; `open()` all of them from now on. `break_on` names the ids that make a pass fail,
    `nan_on` those whose row comes out as NaN.
    """

    def __init__(
        self, *, gated: bool = True, break_on: Sequence[int] = (), nan_on: Sequence[int] = (),
        raises: Callable[[], Exception] = lambda: RuntimeError("boom"),
    ) -> None:  # fmt: skip
        self.card = card()
        self.device = "fake"
        self.padding_free = False
        self.released = 0
        self.passes: list[TokenBatch] = []
        self._fake = FakeBackend(self.card)
        self._permits = threading.Semaphore(0)
        self._open = not gated
        self._break_on, self._nan_on, self._raises = list(break_on), list(nan_on), raises

    def run(self, batch: TokenBatch) -> BatchOutput:
        if not self._open:
            assert self._permits.acquire(timeout=20), "the test never let this pass through"
        self.passes.append(batch)
        if np.isin(batch.ids, self._break_on).any():
            raise self._raises()
        output = self._fake.run(batch)
        assert output.dense is not None
        output.dense[np.isin(batch.ids, self._nan_on).any(axis=1)] = np.nan
        return output

    def release_memory(self) -> None:
        self.released += 1

    def step(self) -> None:
        self._permits.release()

    def open(self) -> None:
        self._open = True
        self._permits.release(1_000)

    def close(self) -> None:
        self.open()
