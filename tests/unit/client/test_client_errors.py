"""A failed call becomes one error that says all the server said."""

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2 as details_pb
from google.rpc import status_pb2
from grpc import aio
from pergamon.client import errors

Code = grpc.StatusCode


def failure(code: Code, message: str = "why", *details, encoded: bytes | None = None) -> aio.AioRpcError:
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        packed = Any()
        packed.Pack(detail)
        status.details.append(packed)
    content = encoded if encoded is not None else status.SerializeToString()
    trailers = aio.Metadata(("grpc-status-details-bin", content)) if details or encoded else aio.Metadata()
    return aio.AioRpcError(code, aio.Metadata(), trailers, details=message)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.INVALID_ARGUMENT, errors.InvalidRequestError),
        (Code.OUT_OF_RANGE, errors.InvalidRequestError),
        (Code.NOT_FOUND, errors.NotFoundError),
        (Code.ALREADY_EXISTS, errors.AlreadyExistsError),
        (Code.UNAUTHENTICATED, errors.AuthenticationError),
        (Code.PERMISSION_DENIED, errors.PermissionDeniedError),
        (Code.RESOURCE_EXHAUSTED, errors.OverloadedError),
        (Code.UNAVAILABLE, errors.UnavailableError),
        (Code.DEADLINE_EXCEEDED, errors.DeadlineExceededError),
        (Code.FAILED_PRECONDITION, errors.FailedPreconditionError),
        (Code.INTERNAL, errors.InternalError),
        (Code.UNKNOWN, errors.InternalError),
        (Code.UNIMPLEMENTED, errors.PergamonError),
        (Code.ABORTED, errors.PergamonError),
    ],
)
@pytest.mark.parametrize("reason", ["", "SOME_REASON"])
def test_error_of_each_code_with_and_without_details_has_its_kind(code, kind, reason):
    details = [details_pb.ErrorInfo(reason=reason, domain="pergamon.dev", metadata={"k": "v"})] if reason else []
    error = errors.error_from_rpc(failure(code, "why", *details), "r1")
    assert type(error) is kind
    assert (error.code, error.reason, error.message, error.request_id) == (code, reason, "why", "r1")
    assert error.metadata == ({"k": "v"} if reason else {})
    assert (error.violations, error.retry_after_s, error.resource) == ([], None, None)


def test_error_with_all_details_carries_them_all():
    bad = details_pb.BadRequest()
    bad.field_violations.add(field="query", description="is empty")
    bad.field_violations.add(field="top_k", description="is 0; 1 to 100 are allowed")
    error = errors.error_from_rpc(
        failure(
            Code.INVALID_ARGUMENT,
            "two faults",
            details_pb.ErrorInfo(reason="INVALID_REQUEST"),
            bad,
            details_pb.RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000)),
            details_pb.ResourceInfo(resource_type="document", resource_name="doc_1"),
        ),
        "r1",
    )
    assert error.violations == [("query", "is empty"), ("top_k", "is 0; 1 to 100 are allowed")]
    assert error.retry_after_s == 1.5
    assert error.resource == ("document", "doc_1")
    assert str(error) == "INVALID_ARGUMENT/INVALID_REQUEST: two faults (request r1)"


def test_error_with_unreadable_details_keeps_code_and_message():
    error = errors.error_from_rpc(failure(Code.NOT_FOUND, "gone", encoded=b"\xff\xff\xff"), "r1")
    assert type(error) is errors.NotFoundError
    assert (error.message, error.reason) == ("gone", "")


@pytest.mark.parametrize(
    "raised",
    [
        failure(Code.RESOURCE_EXHAUSTED, "Received message larger than max (70 vs. 64)"),
        failure(Code.RESOURCE_EXHAUSTED, "limit", details_pb.ErrorInfo(reason="MESSAGE_TOO_LARGE")),
    ],
    ids=["said by gRPC", "said by the server"],
)
def test_error_of_a_message_too_large_is_an_invalid_request(raised):
    error = errors.error_from_rpc(raised, "")
    assert type(error) is errors.InvalidRequestError
    assert error.reason == "MESSAGE_TOO_LARGE"
