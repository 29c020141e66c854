"""One rule of admission for unary calls, batches and streams: refused at once, with a time to come back."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from services.inference.cards import ModelKind
from services.inference.types import TokenBatch
from services.tei.v1 import tei_pb2 as pb
from tests.helpers.inference import card, m3_card
from tests.helpers.tei import Client, Shelf, engine_of, failure, gathered, messages, served

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
#: A pass is known to take half a minute, and nobody shall wait for one second.
SLOW: dict[str, Any] = {"known_passes": [(1, 30.0), (100, 31.0)], "limits": {"max_backlog_seconds": 1.0}}


class Busy:
    """A server whose devices each have a pass in hand that does not end before the test does."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.taken = asyncio.Semaphore(0)
        self._loop = asyncio.get_running_loop()

    def hold(self, batch: TokenBatch) -> None:
        self._loop.call_soon_threadsafe(self.taken.release)
        assert self.let_go.wait(timeout=30)


@pytest.fixture
async def busy() -> AsyncIterator[Client]:
    device = Busy()
    embedding = Shelf(engine_of(m3_card(name="tiny-m3"), before_run=device.hold, **SLOW))
    reranking = Shelf(engine_of(card(ModelKind.RERANKER), before_run=device.hold, **SLOW))
    async with served(embedding=embedding, reranking=reranking) as client:
        health = asyncio.gather(device.taken.acquire(), device.taken.acquire())
        first = asyncio.gather(
            client.embed.Embed(pb.EmbedRequest(inputs="w1")),
            client.rerank.Rerank(pb.RerankRequest(query="w1", texts=["w2"])),
        )
        await asyncio.wait_for(health, 20)
        yield client
        device.let_go.set()
        await first


CALLS = {
    "Embed": lambda c: c.embed.Embed(pb.EmbedRequest(inputs="w2")),
    "EmbedSparse": lambda c: c.embed.EmbedSparse(pb.EmbedSparseRequest(inputs="w2")),
    "EmbedAll": lambda c: c.embed.EmbedAll(pb.EmbedAllRequest(inputs="w2")),
    "EmbedStream": lambda c: gathered(c.embed.EmbedStream(messages(pb.EmbedRequest(inputs="w2")))),
    "EmbedSparseStream": lambda c: gathered(c.embed.EmbedSparseStream(messages(pb.EmbedSparseRequest(inputs="w2")))),
    "EmbedAllStream": lambda c: gathered(c.embed.EmbedAllStream(messages(pb.EmbedAllRequest(inputs="w2")))),
    "Rerank": lambda c: c.rerank.Rerank(pb.RerankRequest(query="w1", texts=["w3", "w4"])),
    "RerankStream": lambda c: c.rerank.RerankStream(messages(pb.RerankStreamRequest(query="w1", text="w3"))),
}


async def test_calls_when_the_device_is_overloaded_then_all_are_refused_with_retry_info(busy: Client):
    for name, call in CALLS.items():
        code, reason, details = await asyncio.wait_for(failure(call(busy)), 10)
        assert (name, code, reason) == (name, EXHAUSTED, "OVERLOADED")
        assert details["RetryInfo"].retry_delay.ToMilliseconds() > 1_000


async def test_rerank_stream_when_overloaded_then_refused_before_its_end_is_sent(busy: Client):
    open_end = asyncio.Event()

    async def endless() -> AsyncIterator[pb.RerankStreamRequest]:
        yield pb.RerankStreamRequest(query="w1", text="w3")
        yield pb.RerankStreamRequest(query="w2", text="w3")  # another query: the first text is judged now
        await open_end.wait()

    code, reason, _ = await asyncio.wait_for(failure(busy.rerank.RerankStream(endless())), 10)
    assert (code, reason) == (EXHAUSTED, "OVERLOADED")


async def test_calls_when_the_server_holds_all_it_can_then_tokenizing_is_refused_too(busy: Client):
    busy.edge.max_calls = 2  # as many as are in work
    for call in (
        busy.tokenize.Tokenize(pb.EncodeRequest(inputs="w1")),
        busy.tokenize.Decode(pb.DecodeRequest(ids=[5])),
        gathered(busy.tokenize.TokenizeStream(messages(pb.EncodeRequest(inputs="w1")))),
        busy.info.Info(pb.InfoRequest()),
        busy.predict.Predict(pb.PredictRequest(inputs="a")),
    ):
        code, reason, details = await failure(call)
        assert (code, reason) == (EXHAUSTED, "OVERLOADED")
        assert details["RetryInfo"].retry_delay.ToMilliseconds() > 0
