"""Model cards: what a model is, what it may be fed, and which bytes it is."""

import json
import re
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from services.inference.errors import ModelInvalid
from services.inference.types import Output, Outputs

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ModelKind(StrEnum):
    DENSE = "DENSE"
    RERANKER = "RERANKER"
    SPARSE = "SPARSE"


class Pooling(StrEnum):
    """How token vectors become one: average of the real tokens, the first token, or not at all (no dense output)."""

    MEAN = "MEAN"
    CLS = "CLS"
    NONE = "NONE"


_OUTPUT_OF_KIND = {
    ModelKind.DENSE: Output.DENSE,
    ModelKind.RERANKER: Output.LOGIT,
    ModelKind.SPARSE: Output.SPARSE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What is known about a model; stored beside its weights as card.json.

    `architecture` is the `model_type` of its config (bert, xlm-roberta ...). `dimensions` is the length of a dense
    vector, the size of the vocabulary for SPARSE, 1 for RERANKER. `max_tokens` counts special tokens and
    prefix. `languages` are ISO 639-1 codes the model is good at; empty claims every language. A rerank logit is HIGH
    above `high_logit`, MEDIUM above `medium_logit`, else LOW. `source` says where the weights came from,
    `notes` what a user should know about them.
    `extra_outputs` are what the model gives in the same pass beside its kind's own (BGE-M3: SPARSE, MULTI_VECTOR);
    `multi_vector_dimensions` is the length of a token's vector there. `matryoshka_dimensions` are the shorter lengths
    that a dense vector was trained to be cut to; empty: none is claimed.
    """

    name: str
    aliases: tuple[str, ...] = ()
    kind: ModelKind
    architecture: str
    dimensions: int
    pooling: Pooling = Pooling.NONE
    max_tokens: int = 512
    query_prefix: str = ""
    passage_prefix: str = ""
    languages: tuple[str, ...] = ()
    high_logit: float = 0.5
    medium_logit: float = -1.0
    extra_outputs: tuple[Output, ...] = ()
    multi_vector_dimensions: int = 0
    matryoshka_dimensions: tuple[int, ...] = ()
    licence: str = ""
    source: str = ""
    notes: str = ""
    sha256: str = ""
    tokenizer_sha256: str = ""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ModelInvalid(f"card of model {self.name[:80]!r}: " + "; ".join(problems))

    def _problems(self) -> list[str]:
        problems: list[str] = []
        for name in (self.name, *self.aliases):
            if not _NAME.fullmatch(name):
                problems.append(f"name {name[:80]!r} is not lower-case letters, digits, '.', '_' and '-'")
        if self.dimensions < 1:
            problems.append(f"dimensions is {self.dimensions}, not above 0")
        if not 8 <= self.max_tokens <= 131_072:
            problems.append(f"max_tokens is {self.max_tokens}, not in 8..131072")
        if (self.kind is ModelKind.DENSE) == (self.pooling is Pooling.NONE):
            problems.append(f"pooling {self.pooling} does not go with kind {self.kind}")
        if self.extra_outputs and self.kind is not ModelKind.DENSE:
            problems.append(f"extra_outputs do not go with kind {self.kind}")
        if (Output.MULTI_VECTOR in self.extra_outputs) != (self.multi_vector_dimensions > 0):
            problems.append("multi_vector_dimensions goes with the extra output MULTI_VECTOR, and is needed there")
        if any(not 0 < cut < self.dimensions for cut in self.matryoshka_dimensions):
            problems.append(f"matryoshka_dimensions must lie between 0 and {self.dimensions}")
        if self.medium_logit > self.high_logit:
            problems.append(f"medium_logit {self.medium_logit} is above high_logit {self.high_logit}")
        for field, value in (("sha256", self.sha256), ("tokenizer_sha256", self.tokenizer_sha256)):
            if value and not _SHA256.fullmatch(value):
                problems.append(f"{field} is not 64 hex digits")
        return problems

    @property
    def outputs(self) -> Outputs:
        """Everything that one pass can give."""
        return frozenset((_OUTPUT_OF_KIND[self.kind], *self.extra_outputs))

    def speaks(self, language: str) -> bool:
        """Whether the card claims `language` (ISO 639-1); an unknown language ("") counts as claimed."""
        return not self.languages or not language or language in self.languages

    def prefix(self, *, query: bool) -> str:
        return self.query_prefix if query else self.passage_prefix


def save_card(card: ModelCard, path: Path) -> None:
    path.write_text(json.dumps(asdict(card), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_card(path: Path) -> ModelCard:
    """Read and check card.json. Raises `ModelInvalid` naming the model's folder and what is wrong."""
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelInvalid(f"card of model {path.parent.name!r} cannot be read; pull the model again") from error
    return parse_card(raw, path.parent.name)


def parse_card(raw: object, shown_name: str) -> ModelCard:
    if not isinstance(raw, dict):
        raise ModelInvalid(f"card of model {shown_name!r} is not a JSON object")
    values = dict(cast("dict[str, Any]", raw))
    unknown = sorted(set(values) - {f.name for f in fields(ModelCard)})
    if unknown:
        raise ModelInvalid(f"card of model {shown_name!r} has unknown fields {', '.join(unknown)}")
    try:
        values["kind"] = ModelKind(values["kind"])
        values["pooling"] = Pooling(values.get("pooling", "NONE"))
        for name in ("aliases", "languages"):
            values[name] = tuple(str(v) for v in values.get(name, ()))
        values["extra_outputs"] = tuple(Output(v) for v in values.get("extra_outputs", ()))
        values["matryoshka_dimensions"] = tuple(int(v) for v in values.get("matryoshka_dimensions", ()))
        for name in ("dimensions", "max_tokens", "multi_vector_dimensions"):
            if name in values and type(values[name]) is not int:
                raise TypeError(f"{name} must be an integer, got {values[name]!r}")
        return ModelCard(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelInvalid(f"card of model {shown_name!r}: {error}") from error
