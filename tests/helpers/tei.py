"""A tei.v1 server on models that are made in memory, and what its tests ask of it."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.errors import NotFound
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import App, GrpcServer
from services.common.settings import ServerSettings
from services.inference.backends.fake import FakeBackend
from services.inference.batcher import Batcher, BatcherLimits
from services.inference.cards import ModelCard, ModelKind
from services.inference.engine import InferenceEngine
from services.inference.tokenizer import TextTokenizer
from services.inference.types import BatchOutput, TokenBatch
from services.tei import app as tei
from services.tei.models import Offer, Offers
from services.tei.v1 import tei_pb2_grpc as stubs
from tests.helpers.inference import card, word_tokenizer

MAX_ITEMS = 8
#: Of the judge: the logit of `w<n>` is n less this.
ZERO_WORD = 40
QUERY_PREFIX, PASSAGE_PREFIX = "w80 ", "w81 "


class JudgeBackend(FakeBackend):
    """A reranker that judges by the last word of the passage alone: `w0` is -40, `w40` is 0, `w80` is 40."""

    def run(self, batch: TokenBatch) -> BatchOutput:
        super().run(batch)
        lengths = batch.mask.sum(axis=1)
        last = batch.ids[np.arange(batch.size), lengths - 2]
        return BatchOutput(logits=(last - 4 - ZERO_WORD).astype(np.float32))


class PreciseBackend(FakeBackend):
    """One that says what it computes in."""

    def __init__(self, model: ModelCard, precision: str) -> None:
        super().__init__(model)
        self.precision = precision


def engine_of(
    model: ModelCard, *, before_run: Callable[[TokenBatch], None] | None = None, backend: FakeBackend | None = None,
    **how: Any,
) -> InferenceEngine:  # fmt: skip
    """On a fake device; `how` is given to the batcher."""
    made = JudgeBackend if model.kind is ModelKind.RERANKER else FakeBackend
    backend = backend or made(model, before_run=before_run)
    limits = BatcherLimits(**how.pop("limits", {}))
    batcher = Batcher([backend], limits=limits, clock=SystemClock(), **how)
    tokenizer = word_tokenizer()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    return InferenceEngine(model, TextTokenizer(tokenizer, max_tokens=model.max_tokens), [backend], batcher)


class Shelf:
    """Models in memory, the first of them the default."""

    def __init__(self, *engines: InferenceEngine) -> None:
        self.engines = {engine.card.name: engine for engine in engines}

    def cards(self) -> list[tuple[ModelCard, bool]]:
        return [(engine.card, True) for engine in self.engines.values()]

    def card(self, name: str) -> ModelCard:
        wanted = name or next(iter(self.engines))
        if wanted not in self.engines:
            raise NotFound.model(wanted, tuple(self.engines))
        return self.engines[wanted].card

    @asynccontextmanager
    async def using(self, name: str) -> AsyncIterator[InferenceEngine]:
        yield self.engines[self.card(name).name]

    def offer(self, *names: str) -> Offer:
        async def ready() -> bool:
            return all(engine.healthy for engine in self.engines.values())

        return Offer(models=self, names=names or (next(iter(self.engines)),), max_items=MAX_ITEMS, ready=ready)


def dense_card(**changes: Any) -> ModelCard:
    return card(query_prefix=QUERY_PREFIX, passage_prefix=PASSAGE_PREFIX, **changes)


class Client:
    """The five services of one address."""

    def __init__(self, channel: grpc.aio.Channel, edge: Edge) -> None:
        self.channel = channel
        self.edge = edge
        self.info = stubs.InfoStub(channel)
        self.embed = stubs.EmbedStub(channel)
        self.predict = stubs.PredictStub(channel)
        self.rerank = stubs.RerankStub(channel)
        self.tokenize = stubs.TokenizeStub(channel)

    def counted(self, service: str, method: str, code: str) -> float:
        labels = {"service": service, "method": method, "code": code}
        return self.edge.metrics.registry.get_sample_value("pergamon_rpc_calls_total", labels) or 0.0


@asynccontextmanager
async def served(
    *, embedding: Shelf | None = None, reranking: Shelf | None = None, names: Sequence[str] = (),
    authenticator: Authenticator | None = None, max_reply_bytes: int = 64 << 20,
) -> AsyncIterator[Client]:  # fmt: skip
    """A server for as long as the block runs; its engines are closed with it. `names` are configured."""
    edge = Edge(authenticator=authenticator or Authenticator.open_to_all(), metrics=Metrics(), clock=SystemClock())
    offers = Offers(max_reply_bytes=max_reply_bytes)
    offers.embedding = embedding.offer(*names) if embedding else None
    offers.reranking = reranking.offer() if reranking else None

    async def aclose() -> None:
        for shelf in filter(None, (embedding, reranking)):
            for engine in shelf.engines.values():
                await engine.aclose()

    settings = ServerSettings(port=0, metrics_port=0, drain_seconds=1)
    app = App(bindings=tei.bindings(edge, offers), aclose=aclose)
    server = GrpcServer(settings=settings, edge=edge, apps=[app])
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield Client(channel, edge)
    finally:
        await server.stop()


async def failure(call: Any) -> tuple[grpc.StatusCode, str, dict[str, Any]]:
    """Code, reason and details (by name of their type) of a call that must fail."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return failure_of(error)
    raise AssertionError("the call succeeded")


def failure_of(error: grpc.aio.AioRpcError) -> tuple[grpc.StatusCode, str, dict[str, Any]]:
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert status.message == error.details()
    details = dict(map(_unpacked, status.details))
    return error.code(), details["ErrorInfo"].reason, details


def _unpacked(packed: any_pb2.Any) -> tuple[str, Any]:
    kind = packed.TypeName().rpartition(".")[2]
    message = getattr(error_details_pb2, kind)()
    assert packed.Unpack(message)
    return kind, message


async def messages(*requests: Any) -> AsyncIterator[Any]:
    for request in requests:
        yield request


async def gathered(replies: AsyncIterator[Any]) -> list[Any]:
    return [reply async for reply in replies]


def words(*numbers: int) -> str:
    return " ".join(f"w{number}" for number in numbers)


def norm(values: Iterable[float]) -> float:
    return float(np.linalg.norm(list(values)))
