"""Streams that are written to while they are read, and how they really ended."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine
from typing import Any, TypeVar

import grpc
from grpc import aio

from pergamon.client._calls import errors_of_call

Request = TypeVar("Request")
Response = TypeVar("Response")
Value = TypeVar("Value")

_CUT_OFF = "Internal error from Core"
_PATIENCE_S = 0.5
_STEP_S = 0.005


async def exchange(
    stream: aio.StreamStreamCall[Request, Response],
    requests: AsyncIterable[Request],
    *,
    reply_type: type[Response],
    request_id: str,
) -> AsyncGenerator[Response, None]:
    """The replies of a stream, while `requests` are sent as fast as the server takes them.

    Raises PergamonError when the server ends the stream with an error, and what `requests` raises. Leaving early
    cancels the stream.
    """
    ending = Ending(stream)
    sending = asyncio.create_task(_send_all(stream, requests))
    try:
        while True:
            try:
                with errors_of_call(request_id):
                    reply = await _read(stream, ending)
            except Exception:
                _raise_failure_of(sending)
                raise
            if not isinstance(reply, reply_type):
                return
            yield reply
    finally:
        sending.cancel()
        stream.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _read(stream: aio.StreamStreamCall[Request, Response], ending: "Ending") -> Response | object:
    try:
        return await stream.read()
    except aio.AioRpcError as failure:
        explained = await ending.explain(failure)
        if ending.well:
            return None  # no reply: the stream is at its end
        raise explained from None


async def _send_all(stream: aio.StreamStreamCall[Request, Response], requests: AsyncIterable[Request]) -> None:
    try:
        async for request in requests:
            await stream.write(request)
        await stream.done_writing()
    except (aio.AioRpcError, asyncio.InvalidStateError):
        return  # the stream has ended; the reader learns why
    except BaseException:
        stream.cancel()  # wakes the reader, which raises what happened here
        raise


def _raise_failure_of(sending: asyncio.Task[None]) -> None:
    if sending.done() and not sending.cancelled() and (failure := sending.exception()):
        raise failure


class Ending:
    """Keeps the status a server ended a stream with. Make it before the first write.

    A write that is cut off by the server's answer makes grpc.aio (1.85) replace the status of the stream, before or
    after the server's own has been taken in, by an INTERNAL without details. The reason of a refusal, or the delay it
    asks for, would be lost. Each status is therefore noted at the moment it is set.
    """

    def __init__(self, stream: aio.Call) -> None:
        self._stream = stream
        self._real: aio.AioRpcError | None = None
        stream.add_done_callback(self._note)

    @property
    def well(self) -> bool:
        """Whether the server's own status, as far as it is known, is OK."""
        return self._real is not None and self._real.code() is grpc.StatusCode.OK

    def _note(self, _: object) -> None:
        status = self._status()
        if status.details() != _CUT_OFF:
            self._real = status

    def _status(self) -> aio.AioRpcError:
        stream = self._stream
        trailers = _at_once(stream.trailing_metadata())
        return aio.AioRpcError(_at_once(stream.code()), aio.Metadata(), trailers, details=_at_once(stream.details()))

    async def explain(self, failure: aio.AioRpcError) -> aio.AioRpcError:
        """What the server said, where `failure` is only the trace of a write that was cut off; else `failure`."""
        left_s = _PATIENCE_S
        while failure.details() == _CUT_OFF and self._real is None and left_s > 0:
            await asyncio.sleep(_STEP_S)  # the server's own status is on its way
            left_s -= _STEP_S
            self._note(None)
        return failure if self._real is None or self.well else self._real


def _at_once(value: Coroutine[Any, Any, Value]) -> Value:
    """The value of a coroutine that has nothing to wait for: the status of a stream that has ended."""
    try:
        value.send(None)
    except StopIteration as done:
        return done.value
    value.close()
    raise RuntimeError("the stream has not ended")
