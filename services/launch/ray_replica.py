"""A service as a Ray Serve replica: the same app and servicers, reached by methods named like the RPCs.

Nothing of Ray is used here, so that what a replica does can be read, typed and tested without it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack, aclosing
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from services.common import logs
from services.common.main import OpenApp, edge_of, without_values
from services.common.rpc import Edge
from services.common.server import App
from services.common.settings import ServerSettings
from services.launch.ray_load import ReplicaLoad

#: Serve's gRPC proxy has no choice of address: it listens on every interface.
EVERY_INTERFACE = "0.0.0.0"  # noqa: S104

_REPLICAS_PORT_STEP = 10

_log = logs.get(__name__)

Settings = TypeVar("Settings", bound=ServerSettings)


class InputStream(Protocol):
    """Serve's stream of requests. It ends in the same way when the client is done and when the client is gone."""

    def __aiter__(self) -> AsyncIterator[Any]: ...

    def is_cancelled(self) -> bool: ...


#: Makes of the call's context what is sent after the last reply of a stream; None: nothing is.
EndOfStream = Callable[[Any], Any] | None


class Replica(Generic[Settings]):
    """One replica of a service. Subclasses name its settings and how it is opened, and `calls_of` gives them methods.

    Serve awaits `__init__` before it sends calls, calls `check_health` and `record_autoscaling_stats` regularly, and
    awaits `__del__` when the calls in work have ended.
    """

    read_settings: ClassVar[Callable[..., Any]]
    open_app: ClassVar[OpenApp[Any]]
    services: ClassVar[Collection[str]] = ()

    async def __init__(self, local_rank: Callable[[], int]) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        self._closing = AsyncExitStack()
        try:
            await self._open(local_rank())
        except BaseException:
            await self._closing.aclose()
            raise

    async def _open(self, local_rank: int) -> None:
        settings, edge = self._prepared()
        self._health_timeout_s = settings.health_interval_s
        self._edge = edge
        self._load = ReplicaLoad(edge.metrics, edge.clock)
        self._app: App = await self._closing.enter_async_context(type(self).open_app(settings, edge))
        self._closing.push_async_callback(self._app.aclose)
        await self._app.start()
        self._handlers = Handlers(self._app, type(self).services)
        self._serve_metrics(settings, local_rank)
        _log.info("serving", services=[binding.name for binding in self._app.bindings], local_rank=local_rank)

    async def check_health(self) -> None:
        """Raises RuntimeError when a service cannot do its work now; Serve then replaces the replica."""
        for binding in self._app.bindings:
            if not await asyncio.wait_for(binding.ready(), self._health_timeout_s):
                raise RuntimeError(f"{binding.name} is not ready")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What the scaling policy goes by; nothing of a service without models, which is scaled by calls."""
        return self._load.read()

    async def __del__(self) -> None:
        closing = getattr(self, "_closing", None)
        if closing is not None:
            await closing.aclose()

    def _prepared(self) -> tuple[Settings, Edge]:
        try:
            settings: Settings = type(self).read_settings(host=EVERY_INTERFACE)
            if settings.tls_cert_file is not None:
                raise ValueError("Ray Serve has no TLS for gRPC: unset PERGAMON_TLS_CERT_FILE, end TLS in front of it")
            logs.configure(settings.log_level, settings.log_format)
            return settings, edge_of(settings)
        except ValueError as error:
            # Serve shows the message in the state of the application.
            raise ValueError(without_values(error)) from None

    def _serve_metrics(self, settings: ServerSettings, local_rank: int) -> None:
        if not settings.metrics_port:
            return
        port = settings.metrics_port + _REPLICAS_PORT_STEP * local_rank
        try:
            self._edge.metrics.serve(settings.host, port)
        except OSError as error:  # a replica that is being replaced may still have it
            _log.error("metrics_not_served", port=port, reason=str(error))


class Handlers:
    """The methods of the servicers of an app, by name. Stands in for the gRPC server that servicers register with.

    Serve finds methods by name alone, so that of services with methods of the same names only one can be had: what is
    not among `services` (full names) is left out.
    """

    def __init__(self, app: App, services: Collection[str]) -> None:
        self._by_name: dict[str, Callable[[Any, Any], Any]] = {}
        self._services = services
        for binding in app.bindings:
            binding.register(self)  # pyright: ignore[reportArgumentType] - the part of grpc.aio.Server that is used

    def __getitem__(self, name: str) -> Callable[[Any, Any], Any]:
        return self._by_name[name]

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """The same methods again, by path."""

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: "dict[str, grpc.RpcMethodHandler[Any, Any]]"
    ) -> None:
        if service_name not in self._services:
            return
        for name, handler in method_handlers.items():
            if name in self._by_name:
                raise ValueError(f"{service_name}: Serve finds methods by name alone, and there are two named {name}")
            kinds = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
            (self._by_name[name],) = [method for method in kinds if method is not None]


R = TypeVar("R", bound=type[Replica[Any]])


def calls_of(*services: ServiceDescriptor, end_of_stream: EndOfStream) -> Callable[[R], R]:
    """Give a replica a method for each RPC of the services, which hands over to the servicer's method of that name."""

    def decorate(replica: R) -> R:
        replica.services = [service.full_name for service in services]
        for service in services:
            for method in service.methods:
                setattr(replica, method.name, _call(method, end_of_stream))
        return replica

    return decorate


def _call(method: MethodDescriptor, end_of_stream: EndOfStream) -> Callable[..., Any]:
    name, takes_stream = method.name, method.client_streaming

    async def one(self: Replica[Any], request: Any, grpc_context: Any) -> Any:
        handler: Callable[[Any, Any], Awaitable[Any]] = self._handlers[name]  # pyright: ignore[reportPrivateUsage]
        return await handler(_requests(request) if takes_stream else request, grpc_context)

    async def many(self: Replica[Any], request: Any, grpc_context: Any) -> AsyncGenerator[Any]:
        handler: Callable[[Any, Any], AsyncGenerator[Any]] = self._handlers[name]  # pyright: ignore[reportPrivateUsage]
        async with aclosing(handler(_requests(request) if takes_stream else request, grpc_context)) as replies:
            async for reply in replies:
                yield reply
        if end_of_stream is not None:
            yield end_of_stream(grpc_context)

    made = many if method.server_streaming else one
    made.__name__ = name
    return made


async def _requests(stream: InputStream) -> AsyncGenerator[Any]:
    """The requests; a client that is gone is a cancellation, and not the end of what it sent."""
    async for request in stream:
        yield request
    if stream.is_cancelled():
        raise asyncio.CancelledError
