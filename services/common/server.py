"""The gRPC server around one or more services: health, reflection, TLS, limits, and an orderly end."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import grpc
from grpc_reflection.v1alpha import reflection

from services.common import logs
from services.common.health import HEALTH_SERVICE, HealthBoard
from services.common.rpc import Edge
from services.common.settings import ServerSettings
from services.common.unread import ReadByEdge

_log = logs.get(__name__)

_KEEPALIVE_OPTIONS = (
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),  # a second server on the same port is an error, not a silent half of the traffic
)


#: After the drain, for what was cut off to tell its caller so: gRPC would end it without a reason.
_LAST_WORD_S = 1.0


async def _always_ready() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One proto service of a server: its full name, how to register it, and whether it can do its work now."""

    name: str
    register: Callable[[grpc.aio.Server], None]
    ready: Callable[[], Awaitable[bool]] = _always_ready


async def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """A service put together: what it serves, and how it ends. `start` runs before it serves, `aclose` after."""

    bindings: tuple[Binding, ...]
    start: Callable[[], Awaitable[None]] = _nothing
    aclose: Callable[[], Awaitable[None]] = _nothing


@dataclass(slots=True)
class GrpcServer:
    """Serves apps on one port. `start`, then `wait_for_signal` or whatever the caller waits for, then `stop`.

    `local_address` is a further address without TLS, for callers on this machine: a socket file, as `unix:/path`.
    """

    settings: ServerSettings
    edge: Edge
    apps: Sequence[App]
    local_address: str = ""
    port: int = 0
    _server: grpc.aio.Server | None = None
    _health: HealthBoard = field(default_factory=HealthBoard)
    _watch: asyncio.Task[None] | None = None

    @property
    def bindings(self) -> list[Binding]:
        return [binding for app in self.apps for binding in app.bindings]

    async def start(self) -> None:
        """Start the apps and listen. Raises OSError when the port is taken."""
        await asyncio.gather(*(app.start() for app in self.apps))
        size = self.settings.max_message_mib << 20
        server = grpc.aio.server(
            options=(
                *_KEEPALIVE_OPTIONS,
                ("grpc.max_receive_message_length", size),
                ("grpc.max_send_message_length", size),
            ),
            # The edge refuses with details before this; it is the last line against a flood of empty streams.
            maximum_concurrent_rpcs=self.settings.max_calls * 2,
        )
        for binding in self.bindings:
            binding.register(cast("grpc.aio.Server", ReadByEdge(server)))
        self._health.register(server)
        names = [binding.name for binding in self.bindings]
        reflection.enable_server_reflection([*names, HEALTH_SERVICE, reflection.SERVICE_NAME], server)
        self._server = server
        # Answers while the process lives, whatever it depends on: for liveness probes.
        await self._health.publish(HEALTH_SERVICE, True)
        await self.check_health()
        self.port = self._listen(server)
        if self.local_address:
            server.add_insecure_port(self.local_address)
        await server.start()
        self._watch = asyncio.create_task(self._watch_health())
        _log.info("serving", host=self.settings.host, port=self.port, services=names)

    async def check_health(self) -> None:
        """Ask every service whether it can work, and publish the answers; the empty name stands for all of them."""
        statuses: list[bool] = []
        for binding in self.bindings:
            ready = False
            with contextlib.suppress(Exception):
                ready = await asyncio.wait_for(binding.ready(), self.settings.health_interval_s)
            statuses.append(ready)
            await self._health.publish(binding.name, ready)
        await self._health.publish("", all(statuses))

    async def wait_for_signal(self) -> None:
        """Return at the first SIGTERM or SIGINT, or when the edge has failed and nothing more can be served."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, self.edge.failed)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def stop(self) -> None:
        """Drain: report NOT_SERVING, refuse new calls, let those in work end within `drain_seconds`, close the apps."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self.edge.drain(self.settings.drain_seconds)
        await self._health.shut_down()
        if self._server is not None:
            await self._server.stop(self.settings.drain_seconds + _LAST_WORD_S)
        for app in reversed(self.apps):
            try:
                await app.aclose()
            except Exception as error:  # the other apps must still be closed
                _log.error("close_failed", exc_info=error)
        _log.info("stopped")

    async def _watch_health(self) -> None:
        while True:
            await asyncio.sleep(self.settings.health_interval_s)
            await self.check_health()

    def _listen(self, server: grpc.aio.Server) -> int:
        address = f"{self.settings.host}:{self.settings.port}"
        credentials = _credentials(self.settings)
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)


def _credentials(settings: ServerSettings) -> grpc.ServerCredentials | None:
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    client_ca = settings.tls_client_ca_file
    return grpc.ssl_server_credentials(
        [(settings.tls_key_file.read_bytes(), settings.tls_cert_file.read_bytes())],
        root_certificates=client_ca.read_bytes() if client_ca else None,
        require_client_auth=client_ca is not None,
    )
