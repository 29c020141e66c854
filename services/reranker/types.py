"""What a call to the reranker asks for, and what comes back."""

from dataclasses import dataclass

from services.common.errors import ServiceError
from services.domain.scores import RerankScore
from services.inference.types import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankCall:
    """A checked request. `top_n` 0: all; `model` empty: the default.

    `cut_passages`, `cut_query`: what is too long loses its end instead of failing. `language` of the query is an ISO
    639-1 code, empty where it is not known; `require_language` refuses a model that does not claim it.
    """

    model: str
    query: str
    passages: tuple[str, ...]
    top_n: int
    return_text: bool
    lane: Lane = Lane.INTERACTIVE
    cut_passages: bool = True
    cut_query: bool = True
    language: str = ""
    require_language: bool = False


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
    """`scores` by logit, highest first, equal ones in the order of the request. Times in milliseconds.

    `query_truncated`: only the beginning of the query was judged. `language_unsupported`: the call named a language
    that the model's card does not claim.
    """

    model: str
    scores: tuple[ScoredPassage, ...]
    failures: tuple[FailedPassage, ...]
    query_truncated: bool
    language_unsupported: bool
    token_count: int
    tokenize_ms: float
    queue_ms: float
    inference_ms: float
    total_ms: float
