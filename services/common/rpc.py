"""The RPC edge: what every call goes through, as a decorator on servicer methods.

It finds the caller, sets the deadline, bounds the calls in work, counts and times, logs, and turns a failure into a
google.rpc.Status once. It is a decorator and not an interceptor because Ray Serve has no interceptors; it uses
only what a Ray Serve gRPC context has too (metadata, set_code, set_details, set_trailing_metadata).
"""

import asyncio
import functools
import inspect
import secrets
import typing
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import structlog
from prometheus_client import Counter as Tally

from services.common import logs
from services.common.auth import Authenticator, Principal, Role, require
from services.common.clock import Clock, Deadline
from services.common.errors import DeadlineExceeded, Overloaded, Reason, ServiceError
from services.common.metrics import Metrics
from services.common.status import STATUS_TRAILER, status_code, to_status
from services.common.turns import ON_BEHALF_OF, take_turn
from services.common.unread import read

REQUEST_ID = "x-request-id"
TIMEOUT = "x-timeout-ms"
_TIMEOUT_DIGITS = 10
_MOST_CLIENT_CHARS = 200

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a servicer method knows of the call it serves, beside the request.

    `client` is whose turn the call takes among those of others: one credential, or one host where there are none.
    """

    request_id: str
    principal: Principal
    deadline: Deadline
    client: str = ""


class Context(Protocol):
    """The part of a gRPC servicer context that grpc.aio and Ray Serve both have."""

    def invocation_metadata(self) -> Any: ...

    def set_code(self, code: grpc.StatusCode) -> None: ...

    def set_details(self, details: str) -> None: ...

    def set_trailing_metadata(self, trailing_metadata: Any) -> None: ...


class _Meter:
    """The metrics of one method, looked up once: finding a child by its labels costs more than counting with it."""

    def __init__(self, metrics: Metrics, service: str, method: str) -> None:
        self._calls = metrics.calls
        self._labels = (service, method)
        self._seconds = metrics.call_seconds.labels(service, method)
        self._in_work = metrics.calls_in_work.labels(service)
        self._by_code: dict[str, Tally] = {}

    def began(self) -> None:
        self._in_work.inc()

    def left(self) -> None:
        self._in_work.dec()

    def ended(self, code: str, seconds: float) -> None:
        counter = self._by_code.get(code)
        if counter is None:
            counter = self._by_code[code] = self._calls.labels(*self._labels, code)
        counter.inc()
        self._seconds.observe(seconds)


class Edge:
    """Shared by the methods of the services of one server."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        metrics: Metrics,
        clock: Clock,
        default_timeout_s: float = 60.0,
        max_calls: int = 1024,
    ) -> None:
        self.authenticator = authenticator
        self.metrics = metrics
        self.clock = clock
        self.default_timeout_s = default_timeout_s
        self.max_calls = max_calls
        self.in_work = 0
        self.draining = False
        #: The most that one credential may have in work: with all of them, it would lock out the others.
        self.max_calls_of_one = max_calls - max_calls // 8
        self._calls_of: Counter[str] = Counter()
        self._open: set[_Guard] = set()
        self._meters: dict[tuple[str, str], _Meter] = {}
        #: Set when this process cannot do its work any more and should end; `failure` says why.
        self.failed = asyncio.Event()
        self.failure = ""

    def meter(self, service: str, method: str) -> _Meter:
        found = self._meters.get((service, method))
        if found is None:
            found = self._meters[service, method] = _Meter(self.metrics, service, method)
        return found

    def fail(self, reason: str) -> None:
        """Refuse what comes from now on, and let whoever serves this edge end the process."""
        self.draining = True
        self.failure = self.failure or reason
        self.failed.set()

    def drain(self, seconds: float) -> None:
        """Refuse what comes from now on; what is still in work after `seconds` ends with SHUTTING_DOWN."""
        self.draining = True
        for guard in tuple(self._open):
            guard.end_within(seconds)

    def admit(self, service: str, client: str) -> None:
        """Refuse the call when the server drains or has all the calls it can hold, of everybody or of this client."""
        if self.draining:
            self.metrics.refused.labels(service, Reason.SHUTTING_DOWN.name).inc()
            raise _shutting_down()
        whose, most = "the server has", self.max_calls
        if self._calls_of[client] >= self.max_calls_of_one and self.authenticator.required:
            whose, most = "this credential has", self.max_calls_of_one
        elif self.in_work < self.max_calls:
            return
        self.metrics.refused.labels(service, Reason.OVERLOADED.name).inc()
        raise Overloaded(f"{whose} {most} calls in work; retry later", retry_after_s=1.0)

    def began(self, guard: "_Guard", client: str) -> None:
        self.in_work += 1
        self._calls_of[client] += 1
        self._open.add(guard)

    def ended(self, guard: "_Guard", client: str) -> None:
        self.in_work -= 1
        self._calls_of[client] -= 1
        if not self._calls_of[client]:
            del self._calls_of[client]  # else it would grow by every connection that ever came
        self._open.discard(guard)


class HasEdge(Protocol):
    @property
    def edge(self) -> Edge: ...


def rpc(role: Role, *, timeout_s: float | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a servicer method of `async def method(self, call: Call, request) -> Response`, or of an async generator.

    `timeout_s` is the deadline of a call that brings none (default: the edge's); streams that a client may leave
    open pass a large one. The method must be annotated with the message it returns or yields.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isasyncgenfunction(method):
            return _stream(method, role, timeout_s)
        return _unary(method, role, timeout_s)

    return decorate


def _unary(method: Callable[..., Any], role: Role, timeout_s: float | None) -> Callable[..., Any]:
    @functools.wraps(method)
    async def serve(self: HasEdge, request: Any, context: Context) -> Any:
        guard = _Guard(self, method.__name__, context, timeout_s)
        with guard:
            call = guard.open(role)
            async with asyncio.timeout(call.deadline.remaining_s()) as limit:
                guard.limit = limit
                return await method(self, call, read(request))
        return _empty_reply(method)

    return serve


def _stream(method: Callable[..., Any], role: Role, timeout_s: float | None) -> Callable[..., Any]:
    @functools.wraps(method)
    async def serve(self: HasEdge, request: Any, context: Context) -> AsyncIterator[Any]:
        guard = _Guard(self, method.__name__, context, timeout_s)
        with guard:
            call = guard.open(role)
            async with asyncio.timeout(call.deadline.remaining_s()) as limit:
                guard.limit = limit
                async for reply in method(self, call, read(request)):
                    yield reply

    return serve


class _Guard:
    """One call from admission to its last word: a context manager that swallows every failure it has reported."""

    def __init__(self, servicer: HasEdge, method: str, context: Context, timeout_s: float | None) -> None:
        self._edge = servicer.edge
        self._service = _service_label(servicer)
        self._method = method
        self._meter = self._edge.meter(self._service, method)
        self._context = context
        self._timeout_s = timeout_s or self._edge.default_timeout_s
        self._metadata = _metadata(context)
        self._request_id = self._metadata.get(REQUEST_ID, "")[:128] or secrets.token_hex(8)
        self._started = self._edge.clock.monotonic()
        self._admitted = False
        self._client = ""
        self._shut = False
        self.limit: asyncio.Timeout | None = None

    def end_within(self, seconds: float) -> None:
        """Because the server shuts down."""
        until = asyncio.get_running_loop().time() + seconds
        if self.limit is not None and (self.limit.when() or until) >= until:
            self._shut = True
            self.limit.reschedule(until)

    def open(self, role: Role) -> Call:
        edge = self._edge
        structlog.contextvars.bind_contextvars(request_id=self._request_id)
        principal = edge.authenticator.authenticate(self._metadata)
        structlog.contextvars.bind_contextvars(tenant=principal.tenant_id)
        require(principal, role)
        client = self._client = _client_of(principal, self._context, self._metadata)
        edge.admit(self._service, client)
        self._admitted = True
        edge.began(self, client)
        self._meter.began()
        remaining = _time_remaining(self._context, self._metadata)
        deadline = Deadline.after(self._timeout_s if remaining is None else remaining, edge.clock)
        take_turn(client)
        return Call(request_id=self._request_id, principal=principal, deadline=deadline, client=client)

    def __enter__(self) -> "_Guard":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if self._admitted:
            self._edge.ended(self, self._client)
            self._meter.left()
        if error is None:
            self._end("OK")
            self._trail()
            return False
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._end("CANCELLED")
            return False
        if not isinstance(error, Exception):
            return False
        self._report(self._translate(error))
        return True

    def _translate(self, error: Exception) -> ServiceError:
        if isinstance(error, ServiceError):
            return error
        if isinstance(error, TimeoutError) and self.limit is not None and self.limit.expired():
            if self._shut:
                return _shutting_down()
            return DeadlineExceeded("the deadline passed before the work was done")
        _log.error("rpc_defect", service=self._service, method=self._method, exc_info=error)
        return ServiceError(f"internal error; report request id {self._request_id}", reason=Reason.INTERNAL)

    def _report(self, error: ServiceError) -> None:
        code = status_code(error)
        status = to_status(error, self._request_id)
        self._context.set_code(code)
        self._context.set_details(status.message)
        self._trail((STATUS_TRAILER, status.SerializeToString()))
        self._end(code.name)
        _log.info(
            "rpc_failed",
            service=self._service,
            method=self._method,
            reason=error.error_reason.name,
            message=error.message,
        )

    def _trail(self, *more: tuple[str, str | bytes]) -> None:
        # A list: Ray Serve adds it to one of its own.
        self._context.set_trailing_metadata([(REQUEST_ID, self._request_id), *more])

    def _end(self, code: str) -> None:
        self._meter.ended(code, self._edge.clock.monotonic() - self._started)


def _shutting_down() -> ServiceError:
    return ServiceError("the server is shutting down", reason=Reason.SHUTTING_DOWN, retry_after_s=1.0)


def _empty_reply(method: Callable[..., Any]) -> Any:
    """An empty message of the declared type: Ray Serve wants one beside a status too, and clients ignore it."""
    reply_type = typing.get_type_hints(method)["return"]
    return reply_type()


def _service_label(servicer: object) -> str:
    return type(servicer).__name__.removesuffix("Servicer")


def _metadata(context: Context) -> Mapping[str, str]:
    pairs = context.invocation_metadata() or ()
    return {str(key).lower(): str(value) for key, value in pairs if not str(key).endswith("-bin")}


def _client_of(principal: Principal, context: Context, metadata: Mapping[str, str]) -> str:
    """Tenant and credential; without credentials the connection that the call came over, which is all there is.

    Other services say for whom they call.
    """
    if (principal.role >= Role.SERVICE or not principal.key_id) and (other := metadata.get(ON_BEHALF_OF, "")):
        return other[:_MOST_CLIENT_CHARS]
    if principal.key_id:
        return f"{principal.tenant_id}/{principal.key_id}"
    return str(getattr(context, "peer", str)() or "")


def _time_remaining(context: Context, metadata: Mapping[str, str]) -> float | None:
    """Seconds until the client's own deadline; None when it set none.

    The context of Ray Serve does not know it: there it is what the client says in its metadata.
    """
    ask = getattr(context, "time_remaining", None)
    if ask is not None:
        remaining = ask()
        return None if remaining is None else max(0.0, float(remaining))
    said = metadata.get(TIMEOUT, "")
    return int(said) / 1000 if said.isascii() and said.isdecimal() and len(said) <= _TIMEOUT_DIGITS else None
