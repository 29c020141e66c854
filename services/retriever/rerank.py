"""Reranking as an option: in what is left of the deadline, for the model's own languages, never at any price."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.common.clock import Clock, Deadline
from services.domain.scores import RerankScore
from services.retriever.ports import Reranker, RerankerCard, RerankFailed

_CARD_KEPT_S = 300.0
_CARDS_MOST = 64


class LanguageDetector(Protocol):
    async def detect(self, text: str) -> str:
        """ISO 639-1 code of the language of `text`; empty when that is not certain."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Scores in the order of the texts, or why there are none. `reason` may also qualify scores that there are."""

    scores: tuple[RerankScore | None, ...] | None = None
    reason: str = ""


class Reranking:
    """`reserve_s` of the deadline is left for the rest of the search, `timeout_s` the most that is spent."""

    def __init__(
        self, reranker: Reranker, languages: LanguageDetector, clock: Clock, *, timeout_s: float, reserve_s: float
    ) -> None:
        self._reranker = reranker
        self._languages = languages
        self._clock = clock
        self._timeout_s = timeout_s
        self._reserve_s = reserve_s
        self._cards: dict[str, tuple[float, RerankerCard]] = {}

    async def judge(self, query: str, texts: Sequence[str], *, model: str, deadline: Deadline) -> Judgement:
        """Never raises on account of the reranker: a judgement without scores says why."""
        budget_s = min(self._timeout_s, deadline.remaining_s() - self._reserve_s)
        if budget_s <= 0:
            return Judgement(reason="no time left before the deadline")
        end = Deadline.after(budget_s, self._clock)
        try:
            async with asyncio.timeout(budget_s):
                refusal = await self._refusal(query, model, end)
                if refusal:
                    return Judgement(reason=refusal)
                scores = await self._reranker.rerank(query, texts, model=model, timeout_s=_positive(end))
        except TimeoutError:
            return Judgement(reason="DEADLINE_EXCEEDED")
        except RerankFailed as error:
            return Judgement(reason=error.reason)
        missing = sum(score is None for score in scores)
        if missing == len(scores):
            return Judgement(reason="INFERENCE_FAILED")
        return Judgement(
            scores=tuple(scores), reason=f"{missing} of {len(scores)} passages have no score" if missing else ""
        )

    async def _refusal(self, query: str, model: str, end: Deadline) -> str:
        card = await self._card(model, end)
        if not card.languages:
            return ""
        language = await self._languages.detect(query)
        if not language or language in card.languages:
            return ""
        return f"model {card.name} is not made for queries in {language}"

    async def _card(self, model: str, end: Deadline) -> RerankerCard:
        kept = self._cards.get(model)
        if kept is not None and kept[0] > self._clock.monotonic():
            return kept[1]
        card = await self._reranker.card(model, timeout_s=_positive(end))
        if len(self._cards) >= _CARDS_MOST:  # names come from requests
            self._cards.clear()
        self._cards[model] = (self._clock.monotonic() + _CARD_KEPT_S, card)
        return card


def _positive(end: Deadline) -> float:
    """Seconds left; a call whose time is up fails by itself."""
    return max(end.remaining_s(), 0.001)
