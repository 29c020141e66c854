"""EmbedStream: order, errors of one request, and how much of it is in work at once; whose turn a call takes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from pergamon.client import EmbedStreamRequest, Priority, embed_request
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1 import embedder_pb2_grpc as stubs

from services.common.auth import Authenticator
from services.common.clock import Deadline, SystemClock
from services.common.errors import NotFound
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.embedder.bm25 import Bm25Encoder
from services.embedder.engine import EmbedderEngine
from services.embedder.servicer import EmbedderServicer, bytes_in_work
from services.embedder.types import DenseOutput, EmbedCall, EmbedReply
from services.inference.backends.fake import FakeBackend
from services.inference.batcher import Batcher, BatcherLimits
from services.inference.cards import ModelCard
from services.inference.engine import EmbedOutcome, InferenceEngine
from services.inference.tokenizer import TextTokenizer
from services.inference.types import InputType, Lane, Truncation
from tests.helpers.inference import card, word_tokenizer
from tests.unit.embedder.servers import ALL, DENSE, Serving

CLOCK = SystemClock()


async def test_stream_when_requests_differ_then_each_gets_its_own_answer_in_order(embedder: Serving) -> None:
    bulk = Priority.PRIORITY_BULK
    asked = [
        EmbedStreamRequest(id="bulk", request=embed_request(["w1"] * 1000, priority=bulk)),
        EmbedStreamRequest(id="wide", request=embed_request(["w1"], dimensions=999)),
        EmbedStreamRequest(id="unknown", request=embed_request(["w1"], dense_model="no-such")),
        EmbedStreamRequest(id="none", request=pb.EmbedRequest(texts=["w1"])),
        EmbedStreamRequest(id="blank", request=embed_request(["", "w2"], dense_model=ALL, multi_vector=False)),
        EmbedStreamRequest(id="good", request=embed_request(["w1"])),
    ]

    async def requests() -> AsyncGenerator[EmbedStreamRequest]:
        for request in asked:
            yield request

    replies = [reply async for reply in embedder.client.embed_stream(requests())]
    assert [(reply.id, reply.error.reason, reply.response.dense.rows) for reply in replies] == [
        ("bulk", "", 1000),
        ("wide", "INVALID_REQUEST", 0),
        ("unknown", "MODEL_NOT_FOUND", 0),
        ("none", "INVALID_REQUEST", 0),
        ("blank", "", 2),
        ("good", "", 1),
    ]
    assert [report.error.reason for report in replies[4].response.reports] == ["EMPTY_INPUT", ""]
    assert embedder.sample("pergamon_inference_pass_seconds_count", model=DENSE, lane="bulk") > 0


class NotesDeadlines:
    """The part of the engine that a stream asks."""

    def __init__(self) -> None:
        self.remaining_s: list[float] = []

    async def embed(self, call: EmbedCall, deadline: Deadline, *, client: str) -> EmbedReply:
        self.remaining_s.append(deadline.remaining_s())
        raise NotFound.model("none", ())


async def test_stream_when_it_has_no_deadline_then_each_request_has_that_of_a_call_without_one() -> None:
    engine = NotesDeadlines()
    edge = Edge(authenticator=Authenticator.open_to_all(), metrics=Metrics(), clock=CLOCK, default_timeout_s=30)
    servicer = EmbedderServicer(edge, engine, max_texts=8, max_reply_bytes=1 << 20)  # type: ignore[arg-type]
    server = grpc.aio.server()
    stubs.add_EmbedderServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def requests() -> AsyncGenerator[EmbedStreamRequest]:
        for number in "12":
            yield EmbedStreamRequest(id=number, request=embed_request(["w1"]))

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        replies = [reply async for reply in stubs.EmbedderServiceStub(channel).EmbedStream(requests())]
    await server.stop(None)
    assert [reply.error.reason for reply in replies] == ["MODEL_NOT_FOUND"] * 2
    assert [round(left_s, -1) for left_s in engine.remaining_s] == [30, 30]


def test_bytes_in_work_when_texts_are_long_then_few_requests_fill_a_stream() -> None:
    def weight(texts: list[str], **options: Any) -> int:
        return bytes_in_work(EmbedStreamRequest(request=embed_request(texts, **options)))

    mebi = 1 << 20
    assert 16 * weight(["short"] * 32) < 4 * mebi
    assert 16 * weight(["short"] * 1024) < 70 * mebi
    assert 4 * weight(["x" * 10_000] * 1024) > 64 * mebi
    assert 1 * weight(["x" * 1_000] * 100, multi_vector=True) > 64 * mebi


class NotingEngine(InferenceEngine):
    """Remembers whose turn each call took, and in which lane."""

    turns: list[tuple[str, Lane]]

    async def embed(self, *what: Any, **how: Any) -> EmbedOutcome:
        self.turns.append((how["client"], how["lane"]))
        return await super().embed(*what, **how)


class OneModel:
    """The part of a ModelRegistry that the embedder asks, with one model in it."""

    def __init__(self) -> None:
        model, backend = card(), FakeBackend(card())
        tokenizer = TextTokenizer(word_tokenizer(), max_tokens=model.max_tokens)
        batcher = Batcher([backend], limits=BatcherLimits(budget_tokens=64), clock=CLOCK)
        self.engine = NotingEngine(model, tokenizer, [backend], batcher)
        self.engine.turns = []

    def card(self, name: str) -> ModelCard:
        return self.engine.card

    @asynccontextmanager
    async def using(self, name: str) -> AsyncGenerator[InferenceEngine]:
        yield self.engine


async def test_embed_when_a_client_calls_then_the_model_learns_whose_turn_it_is() -> None:
    models = OneModel()
    engine = EmbedderEngine(models, Bm25Encoder())  # type: ignore[arg-type]
    call = EmbedCall(
        texts=("w1",), input_type=InputType.QUERY, truncation=Truncation.FAIL, lane=Lane.BULK,
        dense=DenseOutput(model=""),
    )  # fmt: skip
    await engine.embed(call, Deadline.after(10, CLOCK), client="acme/k1")
    assert models.engine.turns == [("acme/k1", Lane.BULK)]
    await models.engine.aclose()
