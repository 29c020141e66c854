"""What all tei.v1 requests have in common, between the wire and the inside."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.common.errors import FieldViolation, InvalidRequest, Reason, ServiceError
from services.common.validation import Violations
from services.inference.cards import ModelCard
from services.inference.engine import InferenceTiming
from services.inference.types import Truncation
from services.tei.v1 import tei_pb2 as pb

#: Characters of one text. Far beyond the input of any model, and a bound on what a stream may hold in memory.
MAX_CHARS = 4 << 20
_MOST = (1 << 32) - 1
_CUTS = {pb.TRUNCATION_DIRECTION_RIGHT: Truncation.RIGHT, pb.TRUNCATION_DIRECTION_LEFT: Truncation.LEFT}
#: Names of prompts, and whether each is the prefix of queries.
_PROMPTS = {"query": True, "passage": False, "document": False}


class TextRequest(Protocol):
    """A request with a text and what to do about its length."""

    @property
    def inputs(self) -> str: ...

    @property
    def truncate(self) -> bool: ...

    @property
    def truncation_direction(self) -> pb.TruncationDirection.ValueType: ...


@dataclass(slots=True)
class Spent:
    """Gathers what a call costs; `started` by the clock of `time.perf_counter`."""

    started: float
    chars: int = 0
    tokens: int = 0
    tokenize_ms: float = 0.0
    queue_ms: float = 0.0
    inference_ms: float = 0.0

    @classmethod
    def now(cls, chars: int = 0) -> "Spent":
        return cls(time.perf_counter(), chars)

    def add(self, timing: InferenceTiming, tokens: int) -> None:
        """Parts of one call overlap: the slowest of them is what the call waited for."""
        self.tokens += tokens
        self.tokenize_ms += timing.tokenize_ms
        self.queue_ms = max(self.queue_ms, timing.queue_ms)
        self.inference_ms = max(self.inference_ms, timing.inference_ms)

    def out(self) -> pb.Metadata:
        return pb.Metadata(
            compute_chars=min(self.chars, _MOST),
            compute_tokens=min(self.tokens, _MOST),
            total_time_ns=round((time.perf_counter() - self.started) * 1e9),
            tokenization_time_ns=round(self.tokenize_ms * 1e6),
            queue_time_ns=round(self.queue_ms * 1e6),
            inference_time_ns=round(self.inference_ms * 1e6),
        )


def text_in(request: TextRequest, found: Violations) -> Truncation:
    """How the text of the request may be cut, its length and direction checked. Raises EMPTY_INPUT at once."""
    require_text("inputs", request.inputs)
    found.length("inputs", request.inputs, MAX_CHARS)
    return truncation_in(request.truncate, request.truncation_direction, found)


def truncation_in(truncate: bool, direction: int, found: Violations) -> Truncation:
    """A direction that is unknown is a violation, whether or not anything is to be cut."""
    cut = next((cut for number, cut in _CUTS.items() if number == direction), None)
    found.check(cut is not None, "truncation_direction", f"unknown value {direction}; 0 is right, 1 is left")
    return cut if truncate and cut is not None else Truncation.FAIL


def require_text(field: str, text: str) -> None:
    if not text or text.isspace():
        raise InvalidRequest.of(
            FieldViolation(field=field, description="is empty or only white space"), reason=Reason.EMPTY_INPUT
        )


def prompt_in(name: str | None, card: ModelCard) -> str:
    """What stands in front of the text: nothing unless a name is given, else the prefix of the model's card."""
    if name is None:
        return ""
    if (query := _PROMPTS.get(name.lower())) is None:
        raise InvalidRequest.of(
            FieldViolation(field="prompt_name", description=f"is {name[:40]!r}; known are {', '.join(_PROMPTS)}")
        )
    return card.prefix(query=query)


def dimensions_in(request: pb.EmbedRequest, card: ModelCard) -> int:
    """The length to cut vectors to."""
    if not request.HasField("dimensions"):
        return card.dimensions
    if not 0 < request.dimensions <= card.dimensions:
        raise InvalidRequest.of(
            FieldViolation(
                field="dimensions",
                description=f"is {request.dimensions}; {card.name} gives {card.dimensions}, allowed are 1 to that",
            )
        )
    return request.dimensions


def placed(error: ServiceError, field: str) -> ServiceError:
    """The failure of one text as that of the call, with the place of the text."""
    return ServiceError(
        f"{field}: {error.message}",
        reason=error.error_reason,
        metadata=error.metadata,
        violations=error.violations or (FieldViolation(field=field, description=error.message),),
        retry_after_s=error.retry_after_s,
    )


def first_error(errors: Sequence[ServiceError | None]) -> tuple[int, ServiceError] | None:
    return next(((place, error) for place, error in enumerate(errors) if error is not None), None)
