"""What a failed call raises: one class a kind of failure, read from the google.rpc.Status the server sends."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

_DETAILS_KEY = "grpc-status-details-bin"
_MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"


class PergamonError(Exception):
    """A call that failed, as the server (or the network) explained it.

    `code` is the gRPC status; `reason` the machine-readable reason of the API documentation, empty when the answer
    carried none (a broken connection, a deadline noticed here); `message` is for a person. `metadata` are short facts
    (ids, limits); `violations` are (field, description) pairs of an invalid request; `resource` is the (type, name)
    that was not found; `retry_after_s` is the delay the server asked for; `request_id` identifies the call in the
    server's logs.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        *,
        metadata: dict[str, str] | None = None,
        violations: list[tuple[str, str]] | None = None,
        retry_after_s: float | None = None,
        request_id: str = "",
        resource: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(code, reason, message)
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata = metadata or {}
        self.violations = violations or []
        self.retry_after_s = retry_after_s
        self.request_id = request_id
        self.resource = resource

    def __str__(self) -> str:
        kind = f"{self.code.name}/{self.reason}" if self.reason not in ("", self.code.name) else self.code.name
        suffix = f" (request {self.request_id})" if self.request_id else ""
        return f"{kind}: {self.message}{suffix}"


class InvalidRequestError(PergamonError):
    """The request breaks its contract, or is larger than a message may be; repeating it is useless."""


class NotFoundError(PergamonError):
    """Something with this id does not exist for this caller."""


class AlreadyExistsError(PergamonError):
    """A duplicate document, or a request_id that was used for something else."""


class AuthenticationError(PergamonError):
    """The API key is missing or unknown."""


class PermissionDeniedError(PergamonError):
    """The API key's role does not allow this call."""


class OverloadedError(PergamonError):
    """The server refused before it did any work; `retry_after_s` says when to come back."""


class UnavailableError(PergamonError):
    """The server, or something it depends on, cannot be reached now."""


class DeadlineExceededError(PergamonError):
    """The time budget of the call was used up."""


class FailedPreconditionError(PergamonError):
    """The request is sound, but the state of the server does not allow it."""


class InternalError(PergamonError):
    """A defect of the server; report `request_id`."""


_KINDS: dict[grpc.StatusCode, type[PergamonError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequestError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNKNOWN: InternalError,
    grpc.StatusCode.DATA_LOSS: InternalError,
}


@dataclass(slots=True, kw_only=True)
class _Details:
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    violations: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    retry_after_s: float | None = None
    resource: tuple[str, str] | None = None


def error_from_rpc(failure: aio.AioRpcError, request_id: str) -> PergamonError:
    """The error for a failed call; details that are missing or unreadable leave their attributes empty."""
    message = failure.details() or "the server gave no explanation"
    details = _read_details(failure.trailing_metadata() or ())
    code = failure.code()
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and not details.reason and "larger than max" in message:
        details.reason = _MESSAGE_TOO_LARGE  # said by gRPC itself, on either side, which knows no details
    kind = InvalidRequestError if details.reason == _MESSAGE_TOO_LARGE else _KINDS.get(code, PergamonError)
    return kind(
        code,
        details.reason,
        message,
        metadata=details.metadata,
        violations=details.violations,
        retry_after_s=details.retry_after_s,
        request_id=request_id,
        resource=details.resource,
    )


def _read_details(trailers: Iterable[tuple[str, str | bytes]]) -> _Details:
    found = _Details()
    for key, value in trailers:
        if key != _DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            _read_status(value, found)
        except DecodeError:
            continue  # the code and the message still stand
    return found


def _read_status(encoded: bytes, found: _Details) -> None:
    for detail in status_pb2.Status.FromString(encoded).details:
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        resource = error_details_pb2.ResourceInfo()
        if detail.Unpack(info):
            found.reason = info.reason
            found.metadata = dict(info.metadata)
        elif detail.Unpack(bad):
            found.violations += [(v.field, v.description) for v in bad.field_violations]
        elif detail.Unpack(retry):
            found.retry_after_s = retry.retry_delay.ToTimedelta().total_seconds()
        elif detail.Unpack(resource):
            found.resource = (resource.resource_type, resource.resource_name)
