"""ServiceError <-> google.rpc.Status: the one translation, used at the RPC edge and for items of a batch."""

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from pergamon.type.v1.item_error_pb2 import ItemError

from services.common.errors import ERROR_DOMAIN, ServiceError

#: Trailer that carries the serialised google.rpc.Status.
STATUS_TRAILER = "grpc-status-details-bin"

_MAX_BYTES = 4096
_MAX_MESSAGE_CHARS = 1000
_MAX_VIOLATIONS = 16


def to_status(error: ServiceError, request_id: str) -> status_pb2.Status:
    """The status of `error` with all its details, below 4 KB whatever the error holds."""
    code, _ = error.error_reason.code.value
    info = error_details_pb2.ErrorInfo(reason=error.error_reason.name, domain=ERROR_DOMAIN)
    info.metadata["request_id"] = request_id
    for key, value in error.metadata.items():
        info.metadata[key[:64]] = value[:200]
    details: list[any_pb2.Any] = [_pack(info)]
    if error.violations:
        bad = error_details_pb2.BadRequest()
        for violation in error.violations[:_MAX_VIOLATIONS]:
            bad.field_violations.add(field=violation.field[:80], description=violation.description[:160])
        details.append(_pack(bad))
    if error.retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(max(1, round(error.retry_after_s * 1000)))
        details.append(_pack(error_details_pb2.RetryInfo(retry_delay=delay)))
    if error.resource is not None:
        kind, name = error.resource
        details.append(_pack(error_details_pb2.ResourceInfo(resource_type=kind, resource_name=name[:80])))
    status = status_pb2.Status(code=code, message=shown(error), details=details)
    while status.ByteSize() > _MAX_BYTES and len(status.details) > 1:
        del status.details[-1]
    return status


def shown(error: ServiceError) -> str:
    """The message of `error`, at a length that fits a trailer."""
    if len(error.message) <= _MAX_MESSAGE_CHARS:
        return error.message
    return error.message[: _MAX_MESSAGE_CHARS - 1] + "…"


def code_number(error: ServiceError) -> int:
    """google.rpc.Code of `error`, as an integer."""
    number: int = error.error_reason.code.value[0]
    return number


def item_error(error: ServiceError) -> ItemError:
    """`error` as that of one item of a batch, or of one request of a stream."""
    delay_s = error.retry_after_s
    return ItemError(
        code=code_number(error),
        reason=error.error_reason.name,
        message=shown(error),
        retry_after_ms=0 if delay_s is None else max(1, round(delay_s * 1000)),
    )


def status_code(error: ServiceError) -> grpc.StatusCode:
    return error.error_reason.code


def _pack(
    message: error_details_pb2.ErrorInfo
    | error_details_pb2.BadRequest
    | error_details_pb2.RetryInfo
    | error_details_pb2.ResourceInfo,
) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
