"""How a passage was found and how well it fits, as search reports it."""

import math
from dataclasses import dataclass
from enum import StrEnum


class SearchMode(StrEnum):
    HYBRID = "HYBRID"
    SEMANTIC = "SEMANTIC"
    KEYWORD = "KEYWORD"


class MatchedBy(StrEnum):
    SEMANTIC = "SEMANTIC"
    KEYWORD = "KEYWORD"
    BOTH = "BOTH"


class RelevanceLabel(StrEnum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedScore:
    """A place in one ranked list: `rank` from 1, `score` as the engine gave it (cosine, or BM25)."""

    rank: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankScore:
    """The cross-encoder's judgement: raw `logit`, `probability` = sigmoid(logit), and the card's label for it."""

    logit: float
    probability: float
    label: RelevanceLabel


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageScores:
    fused: float
    dense: RankedScore | None = None
    bm25: RankedScore | None = None
    rerank: RerankScore | None = None

    @property
    def matched_by(self) -> MatchedBy:
        if self.dense and self.bm25:
            return MatchedBy.BOTH
        return MatchedBy.SEMANTIC if self.dense else MatchedBy.KEYWORD


def sigmoid(value: float) -> float:
    """1 / (1 + e^-value) in double precision, without overflow at either end."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1 + grown)
