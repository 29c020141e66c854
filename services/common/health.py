"""grpc.health.v1, behind a typed face: the library ships no types."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

from collections.abc import Awaitable, Callable

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from services.common.clock import Clock

HEALTH_SERVICE: str = health.SERVICE_NAME
_GOOD_FOR_S = 1.0


async def answers(channel: grpc.aio.Channel, *, timeout_s: float) -> bool:
    """Whether a server answers the health service at all, whatever it says."""
    try:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
    except grpc.aio.AioRpcError:
        return False
    return True


class HealthBoard:
    """The published state of every service of a server; the empty name stands for all of them together."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()

    def register(self, server: grpc.aio.Server) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def publish(self, service: str, serving: bool) -> None:
        states = health_pb2.HealthCheckResponse
        await self._servicer.set(service, states.SERVING if serving else states.NOT_SERVING)

    async def shut_down(self) -> None:
        """Everything is NOT_SERVING from now on."""
        await self._servicer.enter_graceful_shutdown()


class Remembered:
    """The last answer of a check, for a moment: several services of a port ask about the same models in turn."""

    def __init__(self, check: Callable[[], Awaitable[bool]], clock: Clock) -> None:
        self._check = check
        self._clock = clock
        self._until = float("-inf")
        self._answer = False

    async def __call__(self) -> bool:
        if self._clock.monotonic() >= self._until:
            self._answer = await self._check()
            self._until = self._clock.monotonic() + _GOOD_FOR_S
        return self._answer
