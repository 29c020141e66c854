"""What a call to the reranker asks for, and what comes back."""

from dataclasses import dataclass

from services.common.errors import ServiceError
from services.domain.scores import RerankScore


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankCall:
    """A checked request. `top_n` 0: all; `model` empty: the default."""

    model: str
    query: str
    passages: tuple[str, ...]
    top_n: int
    return_text: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPassage:
    """The judgement of the passage at `index` of the request."""

    index: int
    score: RerankScore
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPassage:
    index: int
    error: ServiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankReply:
    """`scores` by logit, highest first, equal ones in the order of the request. Times in milliseconds."""

    model: str
    scores: tuple[ScoredPassage, ...]
    failures: tuple[FailedPassage, ...]
    token_count: int
    tokenize_ms: float
    queue_ms: float
    inference_ms: float
    total_ms: float
