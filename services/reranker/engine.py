"""The reranker's one job: scores for passages, best first."""

import math
import time

from services.common.clock import Deadline
from services.domain.scores import RelevanceLabel, RerankScore
from services.inference.cards import ModelCard
from services.inference.registry import ModelRegistry
from services.inference.types import Lane, Truncation
from services.reranker.types import FailedPassage, RerankCall, RerankReply, ScoredPassage


class RerankerEngine:
    """Loads its model with the first call: many deployments never rerank."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry

    async def rerank(self, call: RerankCall, deadline: Deadline) -> RerankReply:
        """Errors of the whole call: MODEL_NOT_FOUND, OVERLOADED and the like, INPUT_TOO_LONG (a query that leaves no
        room for a passage); those of one passage are among the failures."""
        started = time.perf_counter()
        engine = await self._registry.engine(call.model)
        outcome = await engine.rerank(
            call.query, call.passages, truncation=Truncation.RIGHT, lane=Lane.INTERACTIVE, deadline=deadline
        )
        scores: list[ScoredPassage] = []
        failures: list[FailedPassage] = []
        for index, (logit, item) in enumerate(zip(outcome.logits, outcome.items, strict=True)):
            if item.error is not None:
                failures.append(FailedPassage(index=index, error=item.error))
            else:
                score = judged(logit, engine.card)
                scores.append(ScoredPassage(index=index, score=score, truncated=item.truncated))
        scores.sort(key=lambda scored: -scored.score.logit)  # stable: equal logits stay in the order of the request
        return RerankReply(
            model=engine.card.name,
            scores=tuple(scores[: call.top_n or None]),
            failures=tuple(failures),
            token_count=sum(item.token_count for item in outcome.items),
            tokenize_ms=outcome.timing.tokenize_ms,
            queue_ms=outcome.timing.queue_ms,
            inference_ms=outcome.timing.inference_ms,
            total_ms=(time.perf_counter() - started) * 1000,
        )

    def models(self) -> list[tuple[ModelCard, bool]]:
        """Cards, the default first, and whether each is loaded."""
        return self._registry.cards()

    def model(self, name: str) -> tuple[ModelCard, bool]:
        """Errors: MODEL_NOT_FOUND, MODEL_NOT_AVAILABLE, WRONG_MODEL_KIND."""
        card = self._registry.card(name)
        loaded = {found.name: is_loaded for found, is_loaded in self._registry.cards()}
        return card, loaded.get(card.name, False)

    async def start(self) -> None:
        await self._registry.start()

    async def ready(self) -> bool:
        return await self._registry.proves_healthy()

    async def aclose(self) -> None:
        await self._registry.aclose()


def judged(logit: float, card: ModelCard) -> RerankScore:
    """The judgement that a logit stands for, by the thresholds of the card; both computed in double precision."""
    if logit > card.high_logit:
        label = RelevanceLabel.HIGH
    elif logit > card.medium_logit:
        label = RelevanceLabel.MEDIUM
    else:
        label = RelevanceLabel.LOW
    return RerankScore(logit=logit, probability=sigmoid(logit), label=label)


def sigmoid(value: float) -> float:
    """1 / (1 + e^-value), without overflow at either end."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1 + grown)
