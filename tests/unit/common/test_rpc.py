"""The RPC edge over a real grpc.aio server: what a client sees of success, failure, deadlines and overload."""

import asyncio
import contextvars
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1 import embedder_pb2_grpc as stubs

from services.common.auth import Authenticator, Role
from services.common.clock import SystemClock
from services.common.errors import FieldViolation, InvalidRequest, NotFound, Overloaded, Reason, ServiceError
from services.common.metrics import Metrics
from services.common.rpc import Call, Edge, rpc
from services.common.server import App, Binding, GrpcServer
from services.common.settings import ServerSettings
from services.common.turns import ON_BEHALF_OF, take_turn, turn
from tests.helpers.product import until

NAME = pb.DESCRIPTOR.services_by_name["EmbedderService"].full_name

Behaviour = Callable[[Call], Awaitable[None]]


class ScriptedServicer(stubs.EmbedderServiceServicer):
    """ListModels and GetTokenizer do whatever the test says; EmbedStream gives the ids back."""

    def __init__(self, edge: Edge, behaviour: Behaviour) -> None:
        self.edge = edge
        self.behaviour = behaviour

    @rpc(Role.WRITER)
    async def ListModels(self, call: Call, request: pb.ListModelsRequest) -> pb.ListModelsResponse:
        await self.behaviour(call)
        return pb.ListModelsResponse()

    @rpc(Role.READER)
    async def GetTokenizer(self, call: Call, request: pb.GetTokenizerRequest) -> AsyncIterator[pb.GetTokenizerResponse]:
        yield pb.GetTokenizerResponse(data=b"first")
        await self.behaviour(call)

    @rpc(Role.READER)
    async def EmbedStream(
        self, call: Call, request: AsyncIterator[pb.EmbedStreamRequest]
    ) -> AsyncIterator[pb.EmbedStreamResponse]:
        async for one in request:
            yield pb.EmbedStreamResponse(id=one.id)


@asynccontextmanager
async def serving(
    behaviour: Behaviour, **edge_options: object
) -> AsyncIterator[tuple[stubs.EmbedderServiceStub, Edge]]:
    edge = Edge(
        **{"authenticator": Authenticator.open_to_all(), "metrics": Metrics(), "clock": SystemClock(), **edge_options}
    )
    servicer = ScriptedServicer(edge, behaviour)
    binding = Binding(name=NAME, register=lambda s: stubs.add_EmbedderServiceServicer_to_server(servicer, s))
    settings = ServerSettings(port=0, metrics_port=0, drain_seconds=1)
    server = GrpcServer(settings=settings, edge=edge, apps=[App(bindings=(binding,))])
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = stubs.EmbedderServiceStub(channel)
        stub.channel = channel
        yield stub, edge
    await server.stop()


def raising(error: Exception) -> Behaviour:
    async def behave(call: Call) -> None:
        raise error

    return behave


async def nothing(call: Call) -> None:
    return None


def details(error: grpc.aio.AioRpcError) -> dict[str, object]:
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    found: dict[str, object] = {}
    for kind in ("ErrorInfo", "BadRequest", "RetryInfo", "ResourceInfo"):
        message = getattr(error_details_pb2, kind)()
        for packed in status.details:
            if packed.Unpack(message):
                found[kind] = message
    return found


def sample(edge: Edge, name: str, **labels: str) -> float:
    return edge.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_call_when_it_succeeds_then_it_is_counted_once_and_the_request_id_comes_back() -> None:
    async with serving(nothing) as (stub, edge):
        call = stub.ListModels(pb.ListModelsRequest(), metadata=(("x-request-id", "abc"),))
        await call
        assert dict(await call.trailing_metadata())["x-request-id"] == "abc"
        labels = {"service": "Scripted", "method": "ListModels", "code": "OK"}
        assert sample(edge, "pergamon_rpc_calls_total", **labels) == 1
        assert edge.in_work == 0


async def test_call_when_the_request_is_bad_then_all_violations_arrive() -> None:
    error = InvalidRequest.of(
        FieldViolation(field="query", description="is empty"), FieldViolation(field="top_k", description="is 0")
    )
    async with serving(raising(error)) as (stub, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest())
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    found = details(raised.value)
    assert found["ErrorInfo"].reason == "INVALID_REQUEST"
    assert [v.field for v in found["BadRequest"].field_violations] == ["query", "top_k"]


async def test_call_when_overloaded_then_the_retry_delay_arrives() -> None:
    async with serving(raising(Overloaded("full", retry_after_s=1.5))) as (stub, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest())
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details(raised.value)["RetryInfo"].retry_delay.ToMilliseconds() == 1500


async def test_call_when_not_found_then_the_resource_is_named() -> None:
    async with serving(raising(NotFound.knowledge_base("kb_x"))) as (stub, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest())
    assert details(raised.value)["ResourceInfo"].resource_name == "kb_x"


async def test_call_when_the_code_has_a_defect_then_nothing_internal_is_shown() -> None:
    async with serving(raising(RuntimeError("/etc/secret at line 3"))) as (stub, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest())
    assert raised.value.code() == grpc.StatusCode.INTERNAL
    shown = f"{raised.value.details()} {raised.value.trailing_metadata()}"
    assert "secret" not in shown and "RuntimeError" not in shown
    assert details(raised.value)["ErrorInfo"].reason == "INTERNAL"


_NO_MESSAGE = b"\x0a\x03\xed\xa0\x80"  # a text that is half of a surrogate pair


def unread_call(stub: stubs.EmbedderServiceStub, method: str, *, streaming: bool) -> Callable[..., Any]:
    """`method` for bytes as they stand, over the channel of `stub`."""
    kind = stub.channel.stream_stream if streaming else stub.channel.unary_unary
    return kind(f"/{NAME}/{method}", request_serializer=None, response_deserializer=pb.EmbedStreamResponse.FromString)


async def test_call_when_the_bytes_are_no_message_then_it_is_refused_with_details_and_counted() -> None:
    async with serving(nothing) as (stub, edge):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await unread_call(stub, "ListModels", streaming=False)(_NO_MESSAGE[:3])
        labels = {"service": "Scripted", "method": "ListModels", "code": "INVALID_ARGUMENT"}
        assert sample(edge, "pergamon_rpc_calls_total", **labels) == 1
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert details(raised.value)["ErrorInfo"].reason == "INVALID_REQUEST"


async def test_call_when_the_bytes_are_no_message_then_the_credential_is_asked_for_first(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    digest = hashlib.sha256(b"key").hexdigest()
    keys.write_text(json.dumps([{"sha256": digest, "tenant": "acme", "role": "writer"}]))
    async with serving(nothing, authenticator=Authenticator.load(keys)) as (stub, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await unread_call(stub, "ListModels", streaming=False)(_NO_MESSAGE[:3])
    assert details(raised.value)["ErrorInfo"].reason == "UNAUTHENTICATED"


async def test_stream_when_bytes_in_it_are_no_message_then_those_before_are_answered_and_it_ends_with_details() -> None:
    async def messages() -> AsyncIterator[bytes]:
        yield pb.EmbedStreamRequest(id="first").SerializeToString()
        yield _NO_MESSAGE

    ids: list[str] = []
    async with serving(nothing) as (stub, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            async for reply in unread_call(stub, "EmbedStream", streaming=True)(messages()):
                ids.append(reply.id)
    assert ids == ["first"]
    assert details(raised.value)["ErrorInfo"].reason == "INVALID_REQUEST"


async def test_stream_when_it_fails_after_a_message_then_the_message_and_the_details_arrive() -> None:
    async with serving(raising(ServiceError("gone", reason=Reason.DEVICE_LOST))) as (stub, _):
        call = stub.GetTokenizer(pb.GetTokenizerRequest())
        received = []
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            async for piece in call:
                received.append(piece.data)
    assert received == [b"first"]
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    assert details(raised.value)["ErrorInfo"].reason == "DEVICE_LOST"


async def test_call_without_a_deadline_when_the_default_passes_then_it_ends() -> None:
    async def hang(call: Call) -> None:
        await asyncio.Event().wait()

    async with serving(hang, default_timeout_s=0.05) as (stub, edge):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest())
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert details(raised.value)["ErrorInfo"].reason == "DEADLINE_EXCEEDED"
        assert edge.in_work == 0


async def test_call_when_the_client_goes_away_then_the_work_is_cancelled_and_counted() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def hang(call: Call) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(hang) as (stub, edge):
        call = stub.ListModels(pb.ListModelsRequest())
        await started.wait()
        call.cancel()
        await asyncio.wait_for(ended.wait(), 5)
        await until(lambda: edge.in_work == 0)
        labels = {"service": "Scripted", "method": "ListModels", "code": "CANCELLED"}
        assert sample(edge, "pergamon_rpc_calls_total", **labels) == 1


async def hang(call: Call) -> None:
    await asyncio.Event().wait()


async def test_call_when_one_credential_holds_all_it_may_then_it_is_refused_and_others_are_not(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    digests = [hashlib.sha256(key).hexdigest() for key in (b"greedy", b"other")]
    keys.write_text(json.dumps([{"sha256": digest, "tenant": "acme", "role": "writer"} for digest in digests]))
    greedy, other = ((("authorization", f"Bearer {key}"),) for key in ("greedy", "other"))
    async with serving(hang, max_calls=8, authenticator=Authenticator.load(keys)) as (stub, edge):
        held = [stub.ListModels(pb.ListModelsRequest(), metadata=greedy) for _ in range(7)]
        await until(lambda: edge.in_work == 7)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest(), metadata=greedy)
        assert details(raised.value)["ErrorInfo"].reason == "OVERLOADED"
        held.append(stub.ListModels(pb.ListModelsRequest(), metadata=other))
        await until(lambda: edge.in_work == 8)
        for call in held:
            call.cancel()
        await until(lambda: edge.in_work == 0)


@pytest.mark.parametrize("deadline_s", [None, 30.0])
async def test_call_when_it_outlasts_the_drain_then_it_is_told_that_the_server_shuts_down(
    deadline_s: float | None,
) -> None:
    edge = Edge(authenticator=Authenticator.open_to_all(), metrics=Metrics(), clock=SystemClock())
    servicer = ScriptedServicer(edge, hang)
    binding = Binding(name=NAME, register=lambda s: stubs.add_EmbedderServiceServicer_to_server(servicer, s))
    settings = ServerSettings(port=0, metrics_port=0, drain_seconds=0.1)
    server = GrpcServer(settings=settings, edge=edge, apps=[App(bindings=(binding,))])
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = stubs.EmbedderServiceStub(channel)
        unary = stub.ListModels(pb.ListModelsRequest(), timeout=deadline_s)
        stream = stub.GetTokenizer(pb.GetTokenizerRequest(), timeout=deadline_s)
        await until(lambda: edge.in_work == 2)
        await server.stop()
        with pytest.raises(grpc.aio.AioRpcError) as of_unary:
            await unary
        with pytest.raises(grpc.aio.AioRpcError) as of_stream:
            assert [part.data async for part in stream] == [b"first"]
    for raised in (of_unary, of_stream):
        assert details(raised.value)["ErrorInfo"].reason == "SHUTTING_DOWN"


async def test_call_when_its_deadline_comes_before_the_end_of_the_drain_then_that_is_what_it_is_told() -> None:
    async with serving(hang, default_timeout_s=0.1) as (stub, edge):
        call = stub.ListModels(pb.ListModelsRequest())
        await until(lambda: edge.in_work == 1)
        edge.drain(5.0)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
    assert details(raised.value)["ErrorInfo"].reason == "DEADLINE_EXCEEDED"


async def test_call_when_the_server_is_full_then_it_is_refused_with_a_delay() -> None:
    release = asyncio.Event()

    async def wait(call: Call) -> None:
        await release.wait()

    async with serving(wait, max_calls=1) as (stub, edge):
        first = asyncio.ensure_future(stub.ListModels(pb.ListModelsRequest()))
        await until(lambda: edge.in_work == 1)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest())
        assert details(raised.value)["ErrorInfo"].reason == "OVERLOADED"
        assert "RetryInfo" in details(raised.value)
        release.set()
        await first


@pytest.mark.parametrize(
    ("authorization", "code", "reason"),
    [
        (None, grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
        ("Bearer wrong", grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
        ("Basic writer-key", grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
        ("Bearer reader-key", grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"),
        ("Bearer writer-key", grpc.StatusCode.OK, ""),
    ],
)
async def test_call_with_keys_when_a_credential_is_shown_then_its_role_decides(
    tmp_path: Path, authorization: str | None, code: grpc.StatusCode, reason: str
) -> None:
    keys = [
        {"sha256": hashlib.sha256(f"{role}-key".encode()).hexdigest(), "tenant": "acme", "role": role}
        for role in ("reader", "writer")
    ]
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(keys))
    tenants = []

    async def note(call: Call) -> None:
        tenants.append(call.principal.tenant_id)

    async with serving(note, authenticator=Authenticator.load(file)) as (stub, _):
        metadata = (("authorization", authorization),) if authorization else ()
        if code is grpc.StatusCode.OK:
            await stub.ListModels(pb.ListModelsRequest(), metadata=metadata)
            assert tenants == ["acme"]
            return
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest(), metadata=metadata)
    assert raised.value.code() == code
    assert details(raised.value)["ErrorInfo"].reason == reason
    assert tenants == []


async def test_error_when_it_holds_more_than_a_trailer_can_then_it_stays_below_4_kb() -> None:
    violations = tuple(FieldViolation(field=f"f{i}" * 50, description="long " * 100) for i in range(500))
    error = InvalidRequest("x" * 50_000, violations=violations, metadata={f"k{i}": "v" * 500 for i in range(3)})
    async with serving(raising(error)) as (stub, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest())
    assert details(raised.value)["ErrorInfo"].reason == "INVALID_REQUEST"
    assert len(dict(raised.value.trailing_metadata())["grpc-status-details-bin"]) <= 4096


@pytest.mark.parametrize("keys", [False, True])
async def test_call_when_it_comes_then_whose_turn_it_takes_is_its_credential_or_its_connection(
    tmp_path: Path, keys: bool
) -> None:
    entry = {"id": "k1", "sha256": hashlib.sha256(b"secret").hexdigest(), "tenant": "acme", "role": "writer"}
    (tmp_path / "keys.json").write_text(json.dumps([entry]))
    options = {"authenticator": Authenticator.load(tmp_path / "keys.json")} if keys else {}
    clients: list[str] = []

    async def note(call: Call) -> None:
        clients.append(call.client)

    async with serving(note, **options) as (stub, _):
        await stub.ListModels(pb.ListModelsRequest(), metadata=(("authorization", "Bearer secret"),))
        await stub.ListModels(pb.ListModelsRequest(), metadata=(("authorization", "Bearer secret"),))
    async with serving(note, **options) as (stub, _):
        await stub.ListModels(pb.ListModelsRequest(), metadata=(("authorization", "Bearer secret"),))
    assert clients[0] == clients[1]
    if keys:
        assert set(clients) == {"acme/k1"}
    else:
        assert clients[0].startswith("ipv4:127.0.0.1:")
        assert clients[2] != clients[0]


@pytest.mark.parametrize(
    ("key", "believed"), [("", True), ("secret", False), ("service", True)], ids=["open", "admin", "service"]
)
async def test_call_when_it_is_made_for_another_then_that_is_believed_of_services_alone(
    tmp_path: Path, key: str, believed: bool
) -> None:
    entry = {"id": "k1", "sha256": hashlib.sha256(b"secret").hexdigest(), "tenant": "acme", "role": "admin"}
    (tmp_path / "keys.json").write_text(json.dumps([entry]))
    options = {"authenticator": Authenticator.load(tmp_path / "keys.json", "service")} if key else {}
    seen: list[tuple[str, str]] = []

    async def note(call: Call) -> None:
        seen.append((call.client, turn()))

    async with serving(note, **options) as (stub, _):
        metadata = (("authorization", f"Bearer {key}"), (ON_BEHALF_OF, "acme/job_1"))
        await stub.ListModels(pb.ListModelsRequest(), metadata=metadata)
    ((client, handed_on),) = seen
    assert (client == "acme/job_1") is believed
    assert handed_on == client  # what this service calls in turn is for the same


@pytest.mark.parametrize(
    ("client", "said"), [("acme/k1", "acme/k1"), ("ключ", ""), ("a\nb", ""), ("x" * 300, "x" * 200)]
)
def test_turn_when_metadata_cannot_carry_it_then_it_is_not_sent(client: str, said: str) -> None:
    def taken() -> str:
        take_turn(client)
        return turn()

    assert contextvars.copy_context().run(taken) == said
