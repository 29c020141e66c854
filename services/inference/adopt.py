"""Takes a Hugging Face style model folder into the store's layout, and reads its card off its configs."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from services.inference.backends.heads import MULTI_VECTOR_HEAD, SPARSE_HEAD, TokenHeads
from services.inference.cards import ModelCard, ModelKind, Pooling, load_card
from services.inference.checkpoint import CARD_FILE, CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE, EncoderConfig, Weights
from services.inference.converters.converted import Converted, FloatTensor
from services.inference.converters.safetensors_bert import read_tensor_file, rename_tensors
from services.inference.errors import ExtraNotInstalled, ModelInvalid
from services.inference.types import Output

_PICKLED_WEIGHTS = "pytorch_model.bin"
#: Heads of BGE-M3 have a file each, with the tensors `weight` and `bias`; in the store they lie with the others.
_HEADS = (SPARSE_HEAD, MULTI_VECTOR_HEAD)
_HEAD_FILES = tuple(f"{head}.{ending}" for head in _HEADS for ending in ("safetensors", "pt"))
#: What is fetched of a hub repository; never code.
WANTED_FILES = (
    CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE, _PICKLED_WEIGHTS, "modules.json", "1_Pooling/config.json",
    "sentence_bert_config.json", "config_sentence_transformers.json", "tokenizer_config.json",
    *_HEAD_FILES,
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
    if (origin / WEIGHTS_FILE).is_file():
        tensors: Mapping[str, FloatTensor] = _unpacked(origin / WEIGHTS_FILE, name)
    elif (origin / _PICKLED_WEIGHTS).is_file():
        tensors = _unpickled(origin / _PICKLED_WEIGHTS, name)
    else:
        raise ModelInvalid(
            f"model {name!r} has neither {WEIGHTS_FILE} nor {_PICKLED_WEIGHTS}; sharded weights do not work"
        )
    converted = Converted(
        tensors=rename_tensors(tensors) | _heads_beside(origin, name),
        config=_read(origin / CONFIG_FILE), tokenizer_json=(origin / TOKENIZER_FILE).read_bytes(),
    )  # fmt: skip
    card = card_of_folder(origin) or _derive_card(origin, converted, name=name, source=source, kind=kind)
    converted.write(folder)
    # A damaged head is refused before it can be stored under the name of a good model.
    TokenHeads.of(folder, card, EncoderConfig.of(converted.config, name), Weights(folder))
    return card


def _heads_beside(origin: Path, name: str) -> dict[str, FloatTensor]:
    out: dict[str, FloatTensor] = {}
    for head in _HEADS:
        safe, pickled = origin / f"{head}.safetensors", origin / f"{head}.pt"
        if safe.is_file():
            tensors = _unpacked(safe, name)
        elif pickled.is_file():
            tensors = _unpickled(pickled, name)
        else:
            continue
        if missing := sorted({"weight", "bias"} - set(tensors)):
            raise ModelInvalid(f"head {head} of model {name!r} lacks {' and '.join(missing)}; fetch its file again")
        out |= {f"{head}.{part}": tensors[part] for part in ("weight", "bias")}
    return out


def _unpacked(path: Path, name: str) -> Mapping[str, FloatTensor]:
    try:
        return read_tensor_file(path)
    except ValueError as error:
        raise ModelInvalid(f"{path.name} of model {name!r} cannot be read; fetch it again") from error


def _unpickled(path: Path, name: str) -> Mapping[str, FloatTensor]:
    try:
        from services.inference.backends.torch import read_pickled_weights
    except ImportError as error:
        raise ExtraNotInstalled(
            f"{path.name} of {name!r} is a PyTorch file; reading it needs the torch extra: "
            "pip install 'pergamon-server[torch]'"
        ) from error
    try:
        return read_pickled_weights(path)
    except Exception as error:  # what unpickling of damaged bytes raises has no common base
        raise ModelInvalid(f"{path.name} of model {name!r} cannot be read; fetch it again") from error


def _derive_card(origin: Path, model: Converted, *, name: str, source: str, kind: ModelKind | None) -> ModelCard:
    shape = EncoderConfig.of(model.config, name)
    chosen = kind or _kind_of(model.config)
    limit = _read(origin / "sentence_bert_config.json").get("max_seq_length")
    sentence_config = _read(origin / "config_sentence_transformers.json")
    prompts = cast("dict[str, str]", sentence_config.get("prompts") or {})
    extras, multi = _extras(model.tensors) if chosen is ModelKind.DENSE else ((), 0)
    return ModelCard(
        name=name,
        kind=chosen,
        architecture=shape.model_type,
        dimensions={ModelKind.DENSE: shape.hidden, ModelKind.RERANKER: 1, ModelKind.SPARSE: shape.vocabulary}[chosen],
        pooling=_pooling_of(origin) if chosen is ModelKind.DENSE else Pooling.NONE,
        max_tokens=min(shape.max_tokens, limit) if isinstance(limit, int) else shape.max_tokens,
        query_prefix=prompts.get("query", ""),
        passage_prefix=prompts.get("passage", prompts.get("document", "")),
        extra_outputs=extras,
        multi_vector_dimensions=multi,
        matryoshka_dimensions=_matryoshka(sentence_config, model.config, below=shape.hidden),
        source=source,
    )


def _extras(tensors: Mapping[str, FloatTensor]) -> tuple[tuple[Output, ...], int]:
    """What the heads that are there give, and the length of a token's vector."""
    sparse, multi = (tensors.get(f"{head}.weight") for head in _HEADS)
    extras = [Output.SPARSE] if sparse is not None else []
    if multi is not None:
        extras.append(Output.MULTI_VECTOR)
    return tuple(extras), 0 if multi is None else multi.shape[0]


def _matryoshka(*configs: Mapping[str, Any], below: int) -> tuple[int, ...]:
    """The lengths that a vector may be cut to, from the first config that states some."""
    for config in configs:
        stated = config.get("matryoshka_dimensions")
        if isinstance(stated, list):
            cuts = {cut for cut in cast("list[object]", stated) if isinstance(cut, int) and 0 < cut < below}
            return tuple(sorted(cuts, reverse=True))
    return ()


def _kind_of(config: Mapping[str, Any]) -> ModelKind:
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
