"""What must not wear out: memory over many calls of all kinds, and the event loop while much is tokenised."""

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from services.common.clock import Deadline, SystemClock
from services.inference.backends.fake import FakeBackend
from services.inference.batcher import Batcher, BatcherLimits
from services.inference.cards import ModelKind
from services.inference.engine import InferenceEngine
from services.inference.tokenizer import TextTokenizer
from services.inference.types import InputType, Lane, TokenBatch, Truncation
from tests.helpers.inference import card, word_tokenizer

CLOCK = SystemClock()
POISON = 40


def _engine(kind: ModelKind) -> InferenceEngine:
    def break_at_poison(batch: TokenBatch) -> None:
        if (batch.ids == POISON).any():
            raise RuntimeError("boom")

    model = card(kind)
    backend = FakeBackend(model, before_run=break_at_poison)
    batcher = Batcher([backend], limits=BatcherLimits(budget_tokens=256), clock=CLOCK)
    return InferenceEngine(model, TextTokenizer(word_tokenizer(), max_tokens=64), [backend], batcher)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The test runner keeps every line that is logged, and failed passes are: that would be counted as a leak."""
    caplog.set_level(logging.CRITICAL, "services.inference.worker")


@pytest.fixture
async def dense() -> AsyncIterator[InferenceEngine]:
    engine = _engine(ModelKind.DENSE)
    yield engine
    await engine.aclose()


@pytest.fixture
async def reranker() -> AsyncIterator[InferenceEngine]:
    engine = _engine(ModelKind.RERANKER)
    yield engine
    await engine.aclose()


async def _calls(work, count: int) -> None:
    """So many calls, eight at a time; every fifth is cancelled on the way, every seventh has no time."""

    async def one(number: int) -> None:
        seconds = 0.0005 if number % 7 == 0 else 30
        task = asyncio.ensure_future(work(number, Deadline.after(seconds, CLOCK)))
        if number % 5 == 0:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for start in range(0, count, 8):
        await asyncio.gather(*(one(number) for number in range(start, start + 8)))


async def _growth_bytes(work) -> int:
    await _calls(work, 400)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        await _calls(work, 800)
        gc.collect()
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    return sum(difference.size_diff for difference in after.compare_to(before, "filename"))


async def test_embed_when_called_many_times_then_memory_stays(dense: InferenceEngine):
    async def work(number: int, deadline: Deadline) -> None:
        texts = [f"w{number % 90} w{i} w{(number * 7) % 90}" for i in range(number % 9 + 1)]
        await dense.embed(
            texts, input_type=InputType.PASSAGE, truncation=Truncation.RIGHT,
            lane=Lane.BULK if number % 2 else Lane.INTERACTIVE, deadline=deadline, client=f"client-{number}",
        )  # fmt: skip

    assert await _growth_bytes(work) < 150_000  # a leak of one ticket a call would be about 800 kB


async def test_rerank_when_called_many_times_then_memory_stays(reranker: InferenceEngine):
    async def work(number: int, deadline: Deadline) -> None:
        passages = [f"w{number % 90} w{i}" for i in range(number % 9 + 1)]
        await reranker.rerank(
            f"w{number % 80}", passages, truncation=Truncation.RIGHT, lane=Lane.INTERACTIVE, deadline=deadline
        )

    assert await _growth_bytes(work) < 150_000


async def test_embed_when_a_huge_batch_is_tokenised_then_the_event_loop_goes_on(dense: InferenceEngine):
    texts = [" ".join(f"w{(i + j) % 90}" for j in range(60)) for i in range(2_000)]
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    encoding = asyncio.ensure_future(dense.token_ids(texts, input_type=InputType.PASSAGE))
    await encoding
    seen_while_encoding = ticks
    ticking.cancel()
    assert seen_while_encoding > 0


async def test_embed_when_calls_expire_and_are_cancelled_in_a_row_then_the_next_is_served(dense: InferenceEngine):
    """A batch loop that a time-out or a cancellation ends would leave everybody after it waiting."""

    async def ask(text: str, seconds: float) -> object:
        return await dense.embed(
            [text], input_type=InputType.QUERY, truncation=Truncation.FAIL, lane=Lane.INTERACTIVE,
            deadline=Deadline.after(seconds, CLOCK),
        )  # fmt: skip

    for number in range(20):
        task = asyncio.ensure_future(ask(f"w{number}", 30))
        await asyncio.sleep(0)
        task.cancel()
        late = asyncio.ensure_future(ask(f"w{number} w1", 1e-5))
        await asyncio.gather(task, late, return_exceptions=True)
    outcome = await asyncio.wait_for(asyncio.ensure_future(ask("w3", 30)), 10)
    assert outcome.items[0].error is None
