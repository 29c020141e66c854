"""How every call is made: deadline, metadata, retries, and one kind of error."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from pergamon.client._retry import RetryPolicy, Timing
from pergamon.client.errors import DeadlineExceededError, PergamonError, error_from_rpc

#: Budget of calls whose length is the caller's affair (uploads, streams), where the caller names none.
STREAM_TIMEOUT_S = 3600.0

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response")
Metadata = tuple[tuple[str, str], ...]


@contextmanager
def errors_of_call(request_id: str) -> Generator[None, None, None]:
    """Turn failures of gRPC into PergamonError; the cancellation of the calling task stays what it is."""
    try:
        yield
    except aio.AioRpcError as failure:
        raise error_from_rpc(failure, request_id) from failure
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        message = "the client was closed during the call"
        raise PergamonError(grpc.StatusCode.CANCELLED, "", message, request_id=request_id) from None


@dataclass(slots=True)
class CallContext:
    """One call over all of its attempts: its id, what travels with it, and what is left of its time."""

    request_id: str
    fixed_metadata: Metadata
    deadline: float
    timing: Timing
    retry: RetryPolicy
    attempt: int = 1

    @property
    def metadata(self) -> Metadata:
        """What travels with an attempt. The time left goes along because not every server can see gRPC's own."""
        left_ms = max(0, int((self.deadline - self.timing.now()) * 1000))
        return (*self.fixed_metadata, ("x-timeout-ms", str(left_ms)))

    def left_s(self) -> float:
        """Seconds to the deadline. Raises DeadlineExceededError when there are none."""
        left = self.deadline - self.timing.now()
        if left <= 0:
            message = "the time budget of the call is used up"
            raise DeadlineExceededError(grpc.StatusCode.DEADLINE_EXCEEDED, "", message, request_id=self.request_id)
        return left

    async def wait_to_retry(self, error: PergamonError) -> None:
        """Wait until the next attempt is due. Raises `error` when there shall be none."""
        left = self.deadline - self.timing.now()
        delay = self.retry.delay_s(error, attempt=self.attempt, left_s=left, chance=self.timing.chance())
        if delay is None:
            raise error
        await self.timing.sleep(delay)
        self.attempt += 1


class Calls:
    """Makes the calls of one client."""

    def __init__(
        self, *, timeout_s: float, api_key: str | None, retry: RetryPolicy, timing: Timing,
        on_behalf_of: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self._timeout_s = _checked(timeout_s)
        self._credentials: Metadata = (("authorization", f"Bearer {_checked_key(api_key)}"),) if api_key else ()
        self._retry = retry
        self._timing = timing
        self._on_behalf_of = on_behalf_of
        self._closed = False

    def close(self) -> None:
        """Refuse calls from now on."""
        self._closed = True

    def begin(self, service: str, timeout_s: float | None, default_s: float | None = None) -> CallContext:
        """Start the clock of a call; `timeout_s` None: `default_s`, else the client's default.

        `service` (a field of Targets) goes along as `application`, by which Ray Serve chooses among the applications
        behind one port; other servers pay no attention to it.
        """
        if self._closed:
            raise RuntimeError("the client is closed")
        budget = _checked(timeout_s) if timeout_s is not None else default_s or self._timeout_s
        request_id = uuid.uuid4().hex
        other = self._on_behalf_of() if self._on_behalf_of is not None else ""
        return CallContext(
            request_id=request_id,
            fixed_metadata=(
                *self._credentials,
                ("x-request-id", request_id),
                ("application", service),
                *((("x-on-behalf-of", other),) if other else ()),
            ),
            deadline=self._timing.now() + budget,
            timing=self._timing,
            retry=self._retry,
        )

    async def unary(
        self,
        method: aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        timeout_s: float | None,
        repeatable: bool = True,
    ) -> Response:
        """Call a unary method; `repeatable` says that doing it twice does no harm."""
        call = self.begin(_service_of(request), timeout_s)

        async def attempt() -> Response:
            return await method(request, timeout=call.left_s(), metadata=call.metadata)

        return await self.attempts(call, attempt, repeatable=repeatable)

    async def attempts(
        self, call: CallContext, attempt: Callable[[], Awaitable[Response]], *, repeatable: bool
    ) -> Response:
        """Run `attempt` until it succeeds, the policy gives up, or the deadline passes."""
        while True:
            try:
                with errors_of_call(call.request_id):
                    return await attempt()
            except PergamonError as error:
                if not repeatable:
                    raise
                await call.wait_to_retry(error)


def _service_of(request: Message) -> str:
    """`embedder` for a message of package pergamon.embedder.v1."""
    return request.DESCRIPTOR.full_name.split(".")[1]


def _checked(timeout_s: float) -> float:
    if not timeout_s > 0:
        raise ValueError(f"timeout_s is {timeout_s}; it must be above 0")
    return timeout_s


def _checked_key(api_key: str) -> str:
    # gRPC would refuse such a key too, with the key in the message.
    if not (api_key.isascii() and api_key.isprintable()) or " " in api_key:
        raise ValueError("api_key holds characters that cannot travel in a header; use printable ASCII without spaces")
    return api_key
