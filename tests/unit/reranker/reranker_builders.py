"""Builders for tests of the reranker: requests, and an engine over a model that says what the test wants."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from pergamon.reranker.v1 import reranker_pb2 as pb

from services.common.clock import Deadline, FakeClock
from services.inference.backends.fake import FakeBackend
from services.inference.batcher import Batcher, BatcherLimits
from services.inference.cards import ModelCard, ModelKind
from services.inference.engine import InferenceEngine, RerankOutcome
from services.inference.tokenizer import TextTokenizer
from services.inference.types import BatchOutput, Lane, TokenBatch
from services.reranker.engine import RerankerEngine
from services.reranker.types import RerankCall
from tests.helpers.inference import card, word_tokenizer

CLOCK = FakeClock()
MAX_TOKENS = 16
SEP = 3


def deadline() -> Deadline:
    return Deadline.after(30, CLOCK)


def call(*passages: str, **changes: Any) -> RerankCall:
    values: dict[str, Any] = {"model": "", "query": "w1", "passages": passages, "top_n": 0, "return_text": False}
    return RerankCall(**values | changes)


def request(*passages: str, query: str = "w1", **fields: Any) -> pb.RerankRequest:
    return pb.RerankRequest(query=query, passages=passages, **fields)


def words(*numbers: int) -> str:
    return " ".join(f"w{number}" for number in numbers)


class ToldBackend(FakeBackend):
    """Scores a pair by the first word of its passage: `logits[7]` is said of passages that begin with w7, else 0.

    `seen` are the pairs it was given, without padding.
    """

    def __init__(self, model: ModelCard, logits: Mapping[int, float]) -> None:
        super().__init__(model)
        self.seen: list[list[int]] = []
        self._logits = logits

    def run(self, batch: TokenBatch) -> BatchOutput:
        rows = [row[keep == 1].tolist() for row, keep in zip(batch.ids, batch.mask, strict=True)]
        self.seen += rows
        said = [self._logits.get(row[row.index(SEP) + 1] - 4, 0.0) for row in rows]
        return BatchOutput(logits=np.array(said, np.float32))


class NotingEngine(InferenceEngine):
    """Remembers whose turn each call took, and in which lane."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.turns: list[tuple[str, Lane]] = []

    async def rerank(self, *what: Any, **how: Any) -> RerankOutcome:
        self.turns.append((how["client"], how["lane"]))
        return await super().rerank(*what, **how)


class OneModel:
    """The part of a ModelRegistry that the reranker asks, with one model in it."""

    def __init__(self, logits: Mapping[int, float], model: ModelCard) -> None:
        self.backend = ToldBackend(model, logits)
        tokenizer = TextTokenizer(word_tokenizer(), max_tokens=model.max_tokens)
        batcher = Batcher([self.backend], limits=BatcherLimits(budget_tokens=64), clock=CLOCK)
        self._engine = NotingEngine(model, tokenizer, [self.backend], batcher)
        self.loads = 0

    @property
    def turns(self) -> list[tuple[str, Lane]]:
        return self._engine.turns

    def card(self, name: str) -> ModelCard:
        return self._engine.card

    @asynccontextmanager
    async def using(self, name: str) -> AsyncGenerator[InferenceEngine]:
        self.loads += 1
        yield self._engine

    async def aclose(self) -> None:
        await self._engine.aclose()


def told(logits: Mapping[int, float] | None = None, **changes: Any) -> tuple[RerankerEngine, OneModel]:
    """An engine whose model gives these logits by the first word of a passage, and the registry that it asks."""
    model = card(ModelKind.RERANKER, **{"max_tokens": MAX_TOKENS, **changes})
    registry = OneModel(logits or {}, model)
    return RerankerEngine(registry), registry  # type: ignore[arg-type]
