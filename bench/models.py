"""Models for measurements: those of the store, and one of the size of bge-m3 with random weights."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.checkpoint import CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE
from services.inference.settings import default_models_dir
from services.inference.store import ModelStore
from services.launch.models import pull_models

LARGE = "xlm-r-large-random"
_TOKENIZER_OF = "multilingual-e5-small"  # the vocabulary of XLM-R
_VOCABULARY, _POSITIONS, _HIDDEN, _INNER, _LAYERS, _HEADS = 250_002, 514, 1024, 4096, 24, 16


def store_with(name: str, folder: Path) -> ModelStore:
    """A store that has `name`: the user's own, or one below `folder` for the model with random weights."""
    store = ModelStore(default_models_dir())
    if name != LARGE:
        pull_models(store, [name], quiet=True)
        return store
    pull_models(store, [_TOKENIZER_OF], quiet=True)
    tokenizer = store.folder(store.card(_TOKENIZER_OF)) / TOKENIZER_FILE
    made = ModelStore(folder)
    made.add(LARGE, lambda empty: _write_large(empty, tokenizer))
    return made


def _write_large(folder: Path, tokenizer: Path) -> ModelCard:
    config = {
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_act": "gelu",
        "hidden_size": _HIDDEN, "num_hidden_layers": _LAYERS, "num_attention_heads": _HEADS,
        "intermediate_size": _INNER, "vocab_size": _VOCABULARY, "max_position_embeddings": _POSITIONS,
        "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02,
    }  # fmt: skip
    (folder / CONFIG_FILE).write_text(json.dumps(config), encoding="utf-8")
    (folder / TOKENIZER_FILE).write_bytes(tokenizer.read_bytes())
    save_file(_random_tensors(), folder / WEIGHTS_FILE, metadata={"format": "pt"})
    return ModelCard(
        name=LARGE, kind=ModelKind.DENSE, architecture="xlm-roberta", dimensions=_HIDDEN, pooling=Pooling.MEAN,
        max_tokens=512, source="random weights",
    )  # fmt: skip


def _random_tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    tensors: dict[str, np.ndarray] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        drawn = rng.standard_normal((rows, columns), np.float32)
        tensors[name] = (drawn * 0.02).astype(np.float16)

    def linear(name: str, rows: int, columns: int) -> None:
        matrix(f"{name}.weight", rows, columns)
        tensors[f"{name}.bias"] = np.zeros(rows, np.float16)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = np.ones(_HIDDEN, np.float16)
        tensors[f"{name}.bias"] = np.zeros(_HIDDEN, np.float16)

    matrix("embeddings.word_embeddings.weight", _VOCABULARY, _HIDDEN)
    matrix("embeddings.position_embeddings.weight", _POSITIONS, _HIDDEN)
    matrix("embeddings.token_type_embeddings.weight", 1, _HIDDEN)
    norm("embeddings.LayerNorm")
    for layer in range(_LAYERS):
        at = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            linear(f"{at}.attention.self.{part}", _HIDDEN, _HIDDEN)
        linear(f"{at}.attention.output.dense", _HIDDEN, _HIDDEN)
        norm(f"{at}.attention.output.LayerNorm")
        linear(f"{at}.intermediate.dense", _INNER, _HIDDEN)
        linear(f"{at}.output.dense", _HIDDEN, _INNER)
        norm(f"{at}.output.LayerNorm")
    return tensors
