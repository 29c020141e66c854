"""The reranker's one job: scores for passages, best first."""

import asyncio
import time
from functools import partial

from services.common.clock import Deadline
from services.domain.scores import RelevanceLabel, RerankScore, sigmoid
from services.inference.cards import ModelCard
from services.inference.engine import RerankOutcome
from services.inference.registry import ModelRegistry
from services.inference.tokenizer import TextTokenizer
from services.inference.types import Truncation
from services.reranker.errors import LanguageNotSupported
from services.reranker.types import FailedPassage, RerankCall, RerankReply, ScoredPassage

#: Queries up to this length are tokenised on the event loop: it takes less than handing them to a thread.
_INLINE_CHARS = 4_000


class RerankerEngine:
    """Loads its model with the first call: many deployments never rerank."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry

    async def rerank(self, call: RerankCall, deadline: Deadline, *, client: str = "") -> RerankReply:
        """`client` is whose turn it takes among those of others.

        Errors of the whole call: those of the registry, LANGUAGE_NOT_SUPPORTED, INPUT_TOO_LONG (the query), OVERLOADED
        and the like; those of one passage are among the failures.
        """
        started = time.perf_counter()
        card = self._registry.card(call.model)
        claimed = card.speaks(call.language)
        if call.require_language and not claimed:
            raise LanguageNotSupported.by(card, call.language)
        truncation = Truncation.RIGHT if call.cut_passages else Truncation.FAIL
        async with self._registry.using(call.model) as engine:
            fitting = time.perf_counter()
            query, query_truncated = await _fitted(engine.tokenizer, call)
            fit_ms = (time.perf_counter() - fitting) * 1000
            outcome = await engine.rerank(
                query, call.passages, truncation=truncation, lane=call.lane, deadline=deadline, client=client
            )
        scores, failures = judgements(outcome, card)
        return RerankReply(
            model=card.name,
            scores=scores[: call.top_n or None],
            failures=failures,
            query_truncated=query_truncated,
            language_unsupported=not claimed,
            token_count=sum(item.token_count for item in outcome.items),
            tokenize_ms=outcome.timing.tokenize_ms + fit_ms,
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
        return card, self._registry.is_loaded(card)

    async def load(self, name: str) -> ModelCard:
        """Errors: those of `ModelRegistry.load`."""
        return await self._registry.load(name)

    async def unload(self, name: str) -> ModelCard:
        """Errors: those of `ModelRegistry.unload`."""
        return await self._registry.unload(name)

    async def start(self) -> None:
        await self._registry.start()

    async def ready(self) -> bool:
        return await self._registry.proves_healthy()

    async def aclose(self) -> None:
        await self._registry.aclose()


async def _fitted(tokenizer: TextTokenizer, call: RerankCall) -> tuple[str, bool]:
    fit = partial(tokenizer.fit_query, call.query, cut=call.cut_query)
    return fit() if len(call.query) <= _INLINE_CHARS else await asyncio.to_thread(fit)


def judgements(outcome: RerankOutcome, card: ModelCard) -> tuple[tuple[ScoredPassage, ...], tuple[FailedPassage, ...]]:
    """What was scored, by logit, highest first and equal ones in the order of the call; and what was not."""
    scores: list[ScoredPassage] = []
    failures: list[FailedPassage] = []
    for index, (logit, item) in enumerate(zip(outcome.logits, outcome.items, strict=True)):
        if item.error is not None:
            failures.append(FailedPassage(index=index, error=item.error))
        else:
            scores.append(ScoredPassage(index=index, score=judged(logit, card), truncated=item.truncated))
    scores.sort(key=lambda scored: -scored.score.logit)  # stable, and not by probability: far from 0 those are equal
    return tuple(scores), tuple(failures)


def judged(logit: float, card: ModelCard) -> RerankScore:
    """The judgement that a logit stands for, by the thresholds of the card; both computed in double precision."""
    if logit > card.high_logit:
        label = RelevanceLabel.HIGH
    elif logit > card.medium_logit:
        label = RelevanceLabel.MEDIUM
    else:
        label = RelevanceLabel.LOW
    return RerankScore(logit=logit, probability=sigmoid(logit), label=label)
