"""Requests are read once the edge has let the call in: what cannot be read is refused as any other request is.

Left to gRPC, a message that is no protobuf ends a call without details and writes a stack trace, for callers without a
credential too.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError

from services.common.errors import FieldViolation, InvalidRequest


class Unread:
    """The bytes of a message, and how to read them."""

    __slots__ = ("_data", "_parse")

    def __init__(self, parse: Callable[[bytes], Any], data: bytes) -> None:
        self._parse = parse
        self._data = data

    def read(self) -> Any:
        """The message. Raises INVALID_REQUEST where the bytes hold none."""
        try:
            return self._parse(self._data)
        except DecodeError:
            said = "cannot be read: these bytes are no protobuf of this method, or a text in them is not UTF-8"
            raise InvalidRequest.of(FieldViolation(field="message", description=said)) from None


def read(request: Any) -> Any:
    """A request, or a stream of them, as a method expects it; what is a message already stays as it is."""
    if isinstance(request, Unread):
        return request.read()
    return _Reading(cast("AsyncIterator[Any]", request)) if isinstance(request, AsyncIterator) else request


class _Reading:
    def __init__(self, requests: AsyncIterator[Any]) -> None:
        self._requests = requests

    def __aiter__(self) -> "_Reading":
        return self

    async def __anext__(self) -> Any:
        return read(await anext(self._requests))


class ReadByEdge:
    """Stands in for a server while methods of the edge are registered: they get their requests unread."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server: Any = server  # its types do not know of registered methods

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Passed over: generated code adds every method in both ways, and the other one goes first anyway."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        self._server.add_registered_method_handlers(
            service_name, {name: _unread(handler) for name, handler in method_handlers.items()}
        )


def _unread(handler: Any) -> Any:
    return handler._replace(request_deserializer=partial(Unread, handler.request_deserializer))
