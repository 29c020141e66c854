"""Takes a Hugging Face style model folder into the store's layout, and reads its card off its configs."""

import json
import re
from pathlib import Path
from typing import Any, cast

from services.inference.cards import ModelCard, ModelKind, Pooling, load_card
from services.inference.checkpoint import CARD_FILE, CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE, EncoderConfig
from services.inference.converters.converted import Converted
from services.inference.converters.safetensors_bert import convert_safetensors, rename_tensors
from services.inference.errors import ExtraNotInstalled, ModelInvalid

_PICKLED_WEIGHTS = "pytorch_model.bin"
#: What is fetched of a hub repository; never code.
WANTED_FILES = (
    CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE, _PICKLED_WEIGHTS, "modules.json", "1_Pooling/config.json",
    "sentence_bert_config.json", "config_sentence_transformers.json", "tokenizer_config.json",
)  # fmt: skip


def model_name(raw: str) -> str:
    """A name the store takes: lower case, other characters than letters, digits, '.', '_' and '-' become '-'."""
    return re.sub(r"[^a-z0-9._-]+", "-", raw.lower()).strip("-._")[:100] or "model"


def card_of_folder(folder: Path) -> ModelCard | None:
    return load_card(folder / CARD_FILE) if (folder / CARD_FILE).is_file() else None


def adopt(origin: Path, folder: Path, *, name: str, source: str, kind: ModelKind | None) -> ModelCard:
    """Write `origin`'s model into `folder` and return its card. An own card.json in `origin` is taken as it is."""
    for needed in (CONFIG_FILE, TOKENIZER_FILE):
        if not (origin / needed).is_file():
            raise ModelInvalid(f"model {name!r} has no {needed}")
    config_json = (origin / CONFIG_FILE).read_bytes()
    tokenizer_json = (origin / TOKENIZER_FILE).read_bytes()
    if (origin / WEIGHTS_FILE).is_file():
        converted = convert_safetensors((origin / WEIGHTS_FILE).read_bytes(), config_json, tokenizer_json)
    elif (origin / _PICKLED_WEIGHTS).is_file():
        converted = _from_pickle(origin, config_json, tokenizer_json, name)
    else:
        raise ModelInvalid(
            f"model {name!r} has neither {WEIGHTS_FILE} nor {_PICKLED_WEIGHTS}; sharded weights do not work"
        )
    card = card_of_folder(origin) or _derive_card(origin, dict(converted.config), name=name, source=source, kind=kind)
    converted.write(folder)
    return card


def _from_pickle(origin: Path, config_json: bytes, tokenizer_json: bytes, name: str) -> Converted:
    try:
        from services.inference.backends.torch import read_pickled_weights
    except ImportError as error:
        raise ExtraNotInstalled(
            f"the weights of {name!r} are a PyTorch file; reading it needs the torch extra: "
            "pip install 'pergamon-server[torch]'"
        ) from error
    tensors = rename_tensors(read_pickled_weights(origin / _PICKLED_WEIGHTS))
    return Converted(tensors=tensors, config=json.loads(config_json), tokenizer_json=tokenizer_json)


def _derive_card(origin: Path, config: dict[str, Any], *, name: str, source: str, kind: ModelKind | None) -> ModelCard:
    shape = EncoderConfig.of(config, name)
    chosen = kind or _kind_of(config)
    limit = _read(origin / "sentence_bert_config.json").get("max_seq_length")
    prompts = cast("dict[str, str]", _read(origin / "config_sentence_transformers.json").get("prompts") or {})
    return ModelCard(
        name=name,
        kind=chosen,
        architecture=shape.model_type,
        dimensions={ModelKind.DENSE: shape.hidden, ModelKind.RERANKER: 1, ModelKind.SPARSE: shape.vocabulary}[chosen],
        pooling=_pooling_of(origin) if chosen is ModelKind.DENSE else Pooling.NONE,
        max_tokens=min(shape.max_tokens, limit) if isinstance(limit, int) else shape.max_tokens,
        query_prefix=prompts.get("query", ""),
        passage_prefix=prompts.get("passage", prompts.get("document", "")),
        source=source,
    )


def _kind_of(config: dict[str, Any]) -> ModelKind:
    architectures = " ".join(str(a) for a in cast("list[object]", config.get("architectures") or []))
    if "ForSequenceClassification" in architectures:
        return ModelKind.RERANKER
    return ModelKind.SPARSE if "ForMaskedLM" in architectures else ModelKind.DENSE


def _pooling_of(origin: Path) -> Pooling:
    pooling = _read(origin / "1_Pooling" / "config.json")
    return Pooling.CLS if pooling.get("pooling_mode_cls_token") else Pooling.MEAN


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        parsed: object = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelInvalid(f"{path.name} of the model is not JSON") from error
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
