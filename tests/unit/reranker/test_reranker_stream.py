"""RerankStream over a real gRPC server: order, errors of one request, how many are in work, and the caller leaving."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import pytest
from pergamon.reranker.v1 import reranker_pb2 as pb
from pergamon.reranker.v1 import reranker_pb2_grpc as stubs

from services.common.auth import Authenticator
from services.common.clock import Deadline, SystemClock
from services.common.errors import NotFound, Overloaded
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import App, Binding, GrpcServer
from services.common.settings import ServerSettings
from services.inference.cards import ModelCard
from services.reranker.servicer import SERVICE, RerankerServicer
from services.reranker.types import RerankCall, RerankReply
from tests.unit.reranker.reranker_builders import request

IN_WORK = 16
MAX_PASSAGES = 20
WAIT_S = 20


@dataclass
class Gate:
    """A reranker that answers a query when it is let through, and remembers what it began and what was cancelled."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    held: frozenset[str] = frozenset()
    begun: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    clients: set[str] = field(default_factory=set)
    remaining_s: list[float] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    moved: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def rerank(self, call: RerankCall, deadline: Deadline, *, client: str) -> RerankReply:
        self.clients.add(client)
        self.remaining_s.append(deadline.remaining_s())
        await self._note(self.begun, call.query)
        try:
            if call.query in self.held:
                await self.open.wait()
        except asyncio.CancelledError:
            await self._note(self.cancelled, call.query)
            raise
        if call.model == "unknown":
            raise NotFound.model(call.model, ())
        if call.model == "full":
            raise Overloaded("the queue is full", retry_after_s=2)
        await self._note(self.ended, call.query)
        return RerankReply(
            model=call.query, scores=(), failures=(), query_truncated=False, language_unsupported=False, token_count=0,
            tokenize_ms=0, queue_ms=0, inference_ms=0, total_ms=0,
        )  # fmt: skip

    def models(self) -> list[tuple[ModelCard, bool]]:
        return []

    async def until(self, seen: list[str], count: int) -> None:
        async with asyncio.timeout(WAIT_S), self.moved:
            await self.moved.wait_for(lambda: len(seen) >= count)

    async def _note(self, where: list[str], query: str) -> None:
        async with self.moved:
            where.append(query)
            self.moved.notify_all()


@asynccontextmanager
async def serving(gate: Gate) -> AsyncIterator[stubs.RerankerServiceStub]:
    edge = Edge(authenticator=Authenticator.open_to_all(), metrics=Metrics(), clock=SystemClock())
    servicer = RerankerServicer(edge, gate, max_passages=MAX_PASSAGES)  # type: ignore[arg-type]
    binding = Binding(name=SERVICE, register=lambda s: stubs.add_RerankerServiceServicer_to_server(servicer, s))
    settings = ServerSettings(port=0, metrics_port=0, drain_seconds=1)
    server = GrpcServer(settings=settings, edge=edge, apps=[App(bindings=(binding,))])
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield stubs.RerankerServiceStub(channel)
    await server.stop()


async def stream_of(requests: Sequence[pb.RerankRequest]) -> AsyncIterator[pb.RerankStreamRequest]:
    for number, one in enumerate(requests):
        yield pb.RerankStreamRequest(id=f"id {number}", request=one)


def numbered(count: int) -> list[pb.RerankRequest]:
    return [request("a", query=str(number)) for number in range(count)]


async def test_stream_when_a_later_request_ends_first_then_replies_keep_the_order_and_the_ids():
    gate = Gate(held=frozenset({"0"}))
    async with serving(gate) as stub:
        replies = stub.RerankStream(stream_of(numbered(5)), timeout=WAIT_S)
        await gate.until(gate.ended, 4)
        gate.open.set()
        received = [reply async for reply in replies]
    assert gate.ended[-1] == "0"
    (client,) = gate.clients
    assert client.startswith("ipv4:127.0.0.1")
    assert [(reply.id, reply.response.model) for reply in received] == [(f"id {n}", str(n)) for n in range(5)]


async def test_stream_when_requests_fail_then_their_replies_say_why_and_the_stream_goes_on():
    bad = [
        request(), request(*["a"] * 21), request("a", query=" "), request("a", model="unknown"),
        request("a", model="full"), request("a", language="??"),
    ]  # fmt: skip
    async with serving(Gate()) as stub:
        requests = stream_of([request("a", query="x"), *bad, request("a", query="y")])
        received = [reply async for reply in stub.RerankStream(requests, timeout=WAIT_S)]
    assert [reply.WhichOneof("outcome") for reply in received] == ["response", *["error"] * 6, "response"]
    assert [reply.error.retry_after_ms for reply in received] == [0, 0, 0, 0, 0, 2_000, 0, 0]
    assert [(reply.error.code, reply.error.reason) for reply in received[1:-1]] == [
        (3, "INVALID_REQUEST"), (3, "BATCH_TOO_LARGE"), (3, "EMPTY_INPUT"), (5, "MODEL_NOT_FOUND"), (8, "OVERLOADED"),
        (3, "INVALID_REQUEST"),
    ]  # fmt: skip


async def test_stream_when_there_are_many_requests_then_at_most_16_are_in_work():
    gate = Gate(held=frozenset(map(str, range(60))))
    async with serving(gate) as stub:
        replies = stub.RerankStream(stream_of(numbered(60)), timeout=WAIT_S)
        await gate.until(gate.begun, IN_WORK)
        await stub.ListModels(pb.ListModelsRequest(), timeout=WAIT_S)  # time enough to begin another
        assert gate.begun == [str(number) for number in range(IN_WORK)]
        gate.open.set()
        assert [reply.id async for reply in replies] == [f"id {number}" for number in range(60)]


async def test_stream_when_those_in_work_have_the_passages_of_a_largest_call_then_no_other_is_read():
    gate = Gate(held=frozenset(map(str, range(6))))
    async with serving(gate) as stub:
        requests = [request(*["a"] * 8, query=str(number)) for number in range(6)]
        replies = stub.RerankStream(stream_of(requests), timeout=WAIT_S)
        await gate.until(gate.begun, 3)
        await stub.ListModels(pb.ListModelsRequest(), timeout=WAIT_S)  # time enough to begin another
        assert gate.begun == ["0", "1", "2"]
        gate.open.set()
        assert [reply.id async for reply in replies] == [f"id {number}" for number in range(6)]


async def test_stream_when_those_in_work_have_long_texts_then_no_other_is_read():
    gate = Gate(held=frozenset(map(str, range(6))))
    async with serving(gate) as stub:
        requests = [request("a" * (12 << 20), query=str(number)) for number in range(6)]
        replies = stub.RerankStream(stream_of(requests), timeout=WAIT_S)
        await gate.until(gate.begun, 3)
        await stub.ListModels(pb.ListModelsRequest(), timeout=WAIT_S)  # time enough to begin another
        assert gate.begun == ["0", "1", "2"]
        gate.open.set()
        assert [reply.id async for reply in replies] == [f"id {number}" for number in range(6)]


async def test_stream_when_it_has_no_deadline_then_each_request_has_that_of_a_call_without_one():
    gate = Gate()
    async with serving(gate) as stub:
        assert len([reply async for reply in stub.RerankStream(stream_of(numbered(2)))]) == 2
        await stub.Rerank(numbered(1)[0], timeout=5)
    assert [round(left_s, -1) for left_s in gate.remaining_s[:2]] == [60, 60]
    assert gate.remaining_s[2] < 6


async def test_stream_when_nobody_reads_then_the_sender_is_held_up():
    taken = 0

    async def endless() -> AsyncIterator[pb.RerankStreamRequest]:
        nonlocal taken
        while True:
            taken += 1
            yield pb.RerankStreamRequest(id=str(taken) + "x" * 100_000, request=request("a", query="y" * 30_000))

    gate = Gate()
    async with serving(gate) as stub:
        replies = stub.RerankStream(endless(), timeout=WAIT_S)
        assert (await replies.read()).id[0] == "1"
        seen = -1
        while seen != taken:  # ends only if the source is held up
            seen = taken
            for _ in range(20):
                await stub.ListModels(pb.ListModelsRequest(), timeout=WAIT_S)
        assert len(gate.begun) <= taken < 200
        replies.cancel()


async def test_stream_when_the_caller_leaves_then_what_is_in_work_is_cancelled():
    gate = Gate(held=frozenset({"0", "1", "2"}))
    async with serving(gate) as stub:
        replies = stub.RerankStream(stream_of(numbered(3)), timeout=WAIT_S)
        await gate.until(gate.begun, 3)
        replies.cancel()
        await gate.until(gate.cancelled, 3)
    assert gate.ended == []


async def test_stream_when_its_deadline_passes_then_it_ends_and_the_work_is_cancelled():
    gate = Gate(held=frozenset({"0"}))
    async with serving(gate) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [reply async for reply in stub.RerankStream(stream_of(numbered(1)), timeout=0.2)]
        await gate.until(gate.cancelled, 1)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_stream_when_there_are_no_requests_then_no_replies():
    async with serving(Gate()) as stub:
        assert [reply async for reply in stub.RerankStream(stream_of([]), timeout=WAIT_S)] == []
