"""The connection to Qdrant, and the only place where its failures are told apart.

Calls go through the raw stubs of qdrant-client: its typed layer would convert every hit twice, which costs more than
the search itself.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import grpc
from qdrant_client import AsyncQdrantClient
from qdrant_client import grpc as q

from services.common.errors import InvalidRequest, Reason, ServiceError, Unavailable

_log = logging.getLogger("pergamon.index")

#: A call that finds the engine down is repeated for this long: a restart of the embedded engine (1 s of work, several
#: on a busy machine) goes unnoticed.
RECONNECT_S = 6.0
_RETRY_INTERVAL_S = 0.05
_MAX_MESSAGE_BYTES = 128 * 1024 * 1024
_CHANNEL_OPTIONS: dict[str, Any] = {
    "grpc.max_send_message_length": _MAX_MESSAGE_BYTES,
    "grpc.max_receive_message_length": _MAX_MESSAGE_BYTES,
    "grpc.initial_reconnect_backoff_ms": 50,
    "grpc.min_reconnect_backoff_ms": 50,
    "grpc.max_reconnect_backoff_ms": 1_000,
}


class CollectionMissing(Unavailable):
    """The collection does not exist: nothing was ever written with this schema, or the index was lost."""


class Deadline:
    """A point in time that the calls of one operation share."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def remaining_s(self) -> float:
        """Seconds left; Unavailable when none are."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise Unavailable(f"the vector index did not answer within {self.timeout_s:g} s")
        return left


class IndexConnection:
    """A channel to the gRPC port of one Qdrant. Connects on the first call."""

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        """`url` is `https://host:port` for TLS, `host:port` or `http://host:port` for none. ValueError for others."""
        host, port, tls = _address(url)
        self._client = AsyncQdrantClient(
            host=host,
            grpc_port=port,
            prefer_grpc=True,
            https=tls,
            api_key=api_key,
            check_compatibility=False,
            grpc_options=dict(_CHANNEL_OPTIONS),
            pool_size=1,
        )

    async def aclose(self) -> None:
        await self._client.close()

    async def answers(self, *, timeout_s: float) -> bool:
        """Whether the index can be asked now, whatever it holds."""
        request = q.CollectionExistsRequest(collection_name="pergamon")
        try:
            await self.collections("CollectionExists", request, Deadline(timeout_s))
        except ServiceError:
            return False
        return True

    async def points(self, method: str, request: object, deadline: Deadline) -> Any:
        """Call a method of Qdrant's Points service; raises what `_translated` says."""
        return await self._call(lambda: getattr(self._client.grpc_points, method), request, deadline)

    async def collections(self, method: str, request: object, deadline: Deadline) -> Any:
        """Call a method of Qdrant's Collections service; raises what `_translated` says."""
        return await self._call(lambda: getattr(self._client.grpc_collections, method), request, deadline)

    async def _call(self, stub: Callable[[], Any], request: object, deadline: Deadline) -> Any:
        """All our calls are idempotent, so one that met a dead or restarting engine is simply repeated for a while."""
        give_up = time.monotonic() + RECONNECT_S
        while True:
            try:
                return await stub()(request, timeout=deadline.remaining_s())
            except grpc.aio.AioRpcError as error:
                down = error.code() is grpc.StatusCode.UNAVAILABLE
                if not down or time.monotonic() + _RETRY_INTERVAL_S >= min(
                    give_up, time.monotonic() + deadline.remaining_s()
                ):
                    raise _translated(error, deadline) from error
            await asyncio.sleep(_RETRY_INTERVAL_S)


def _address(url: str) -> tuple[str, int, bool]:
    """Host, port, and whether to use TLS. The message never holds `url`, which may hold a secret."""
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "http", url
    host, _, port = rest.rstrip("/").rpartition(":")
    if (
        scheme not in ("http", "https")
        or not host
        or not port.isascii()
        or not port.isdecimal()
        or set(host) & set("/@")
    ):
        raise ValueError("the address of Qdrant must be host:port, http://host:port or https://host:port")
    return host, int(port), scheme == "https"


def _translated(error: grpc.aio.AioRpcError, deadline: Deadline) -> ServiceError:  # noqa: PLR0911 - one a status
    code, details = error.code(), error.details() or ""
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unavailable(f"the vector index did not answer within {deadline.timeout_s:g} s")
        case grpc.StatusCode.NOT_FOUND if "ollection" in details:
            return CollectionMissing("the index has no collection for this model yet, or it was lost: re-index")
        case grpc.StatusCode.INVALID_ARGUMENT if "dimension" in details:
            _log.warning("the vector index refused a vector: %s", details[:200])
            return InvalidRequest(
                "a vector has another dimension than the collection of its model", reason=Reason.DIMENSION_MISMATCH
            )
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Unavailable("the vector index is overloaded", retry_after_s=1.0)
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return Unavailable("the vector index refuses our API key: check the setting")
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return Unavailable("the vector index cannot be reached", retry_after_s=1.0)
        case _:
            _log.error("the vector index answered %s: %s", code.name, details[:500])
            return ServiceError(f"the vector index answered {code.name}", reason=Reason.INTERNAL)
