"""The error model: every failure a caller can see has a `Reason`, and this file is the table of them.

A layer raises a `ServiceError` subclass; the RPC edge (`services.common.rpc`) turns it into a google.rpc.Status
once. Messages say what happened, the offending value, what is allowed and what to do; they never hold a
path, a secret or a stack trace.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import grpc

#: `ErrorInfo.domain` of every error of the product.
ERROR_DOMAIN = "pergamon.dev"


class Reason(Enum):
    """Machine-readable reasons (`ErrorInfo.reason`): status code, and what it means for the caller."""

    INVALID_REQUEST = (grpc.StatusCode.INVALID_ARGUMENT, "A field is missing or out of range; see the violations.")
    UNKNOWN_FIELD_MASK_PATH = (grpc.StatusCode.INVALID_ARGUMENT, "The update mask names a field that cannot be set.")
    INVALID_FILTER = (grpc.StatusCode.INVALID_ARGUMENT, "The filter is malformed, too deep, or names an unknown field.")
    INVALID_PAGE_TOKEN = (grpc.StatusCode.INVALID_ARGUMENT, "The page token was not issued for this list.")
    DIMENSION_MISMATCH = (grpc.StatusCode.INVALID_ARGUMENT, "A vector has another dimension than the collection.")
    INPUT_TOO_LONG = (grpc.StatusCode.INVALID_ARGUMENT, "A text exceeds the model's input and truncation is off.")
    BATCH_TOO_LARGE = (grpc.StatusCode.INVALID_ARGUMENT, "More items than one call may carry.")
    MESSAGE_TOO_LARGE = (grpc.StatusCode.RESOURCE_EXHAUSTED, "The message exceeds the server's size limit.")
    EMPTY_INPUT = (grpc.StatusCode.INVALID_ARGUMENT, "A text is empty or only white space.")
    EMPTY_FILE = (grpc.StatusCode.INVALID_ARGUMENT, "The uploaded file has no bytes.")
    FILE_TOO_LARGE = (grpc.StatusCode.INVALID_ARGUMENT, "The uploaded file exceeds the server's limit.")
    CHECKSUM_MISMATCH = (grpc.StatusCode.INVALID_ARGUMENT, "The bytes received do not have the announced sha256.")
    UNSUPPORTED_FORMAT = (grpc.StatusCode.INVALID_ARGUMENT, "The content is none of the supported document formats.")
    UNREADABLE_DOCUMENT = (grpc.StatusCode.INVALID_ARGUMENT, "The document is damaged or not what it claims to be.")
    PASSWORD_REQUIRED = (grpc.StatusCode.INVALID_ARGUMENT, "The document is encrypted and needs a (correct) password.")
    NO_TEXT = (grpc.StatusCode.FAILED_PRECONDITION, "The document holds no extractable text.")
    DOCUMENT_LIMIT = (grpc.StatusCode.FAILED_PRECONDITION, "Reading the document exceeded a limit of time or size.")
    DUPLICATE_DOCUMENT = (grpc.StatusCode.ALREADY_EXISTS, "The same bytes are already stored under another name.")
    REQUEST_ID_REUSED = (grpc.StatusCode.ALREADY_EXISTS, "The request_id was used before with another request.")
    KNOWLEDGE_BASE_NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "No such knowledge base is visible to this caller.")
    DOCUMENT_NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "No such document is visible to this caller.")
    JOB_NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "No such job is visible to this caller.")
    MODEL_NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "This server does not serve the model named.")
    TOKENIZER_NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "This server has no tokenizer with that sha256.")
    MODEL_NOT_AVAILABLE = (grpc.StatusCode.FAILED_PRECONDITION, "The model's weights are not on this machine.")
    MODEL_NOT_LOADED = (grpc.StatusCode.FAILED_PRECONDITION, "The model is installed, but an admin must load it first.")
    MODEL_LIMIT = (grpc.StatusCode.FAILED_PRECONDITION, "The server holds as many models as it may; unload one.")
    MODEL_REQUIRED = (grpc.StatusCode.FAILED_PRECONDITION, "The server cannot do without this model.")
    MODEL_INVALID = (grpc.StatusCode.FAILED_PRECONDITION, "The model's files fail the integrity checks.")
    WRONG_MODEL_KIND = (grpc.StatusCode.FAILED_PRECONDITION, "The model does not produce what was asked of it.")
    LANGUAGE_NOT_SUPPORTED = (grpc.StatusCode.FAILED_PRECONDITION, "The model is not made for the language named.")
    IMMUTABLE_FIELD = (grpc.StatusCode.FAILED_PRECONDITION, "The field cannot change after creation.")
    EXTRA_NOT_INSTALLED = (grpc.StatusCode.FAILED_PRECONDITION, "The feature needs an optional dependency.")
    INFERENCE_FAILED = (grpc.StatusCode.INTERNAL, "The model failed on this input, or produced no finite value.")
    OVERLOADED = (grpc.StatusCode.RESOURCE_EXHAUSTED, "The queue is full; retry after the delay given.")
    DEADLINE_UNREACHABLE = (grpc.StatusCode.DEADLINE_EXCEEDED, "The work alone takes longer than the deadline leaves.")
    DEADLINE_EXCEEDED = (grpc.StatusCode.DEADLINE_EXCEEDED, "The deadline passed before the work was done.")
    CANCELLED = (grpc.StatusCode.CANCELLED, "The caller went away.")
    UNAUTHENTICATED = (grpc.StatusCode.UNAUTHENTICATED, "The credential is missing or unknown.")
    PERMISSION_DENIED = (grpc.StatusCode.PERMISSION_DENIED, "The credential's role does not allow this call.")
    INDEX_UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE, "The vector index cannot be reached.")
    CATALOG_UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE, "The catalogue cannot be reached or is busy.")
    BLOB_STORE_UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE, "The blob store cannot be reached.")
    EMBEDDER_UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE, "The embedder cannot be reached.")
    DEVICE_LOST = (grpc.StatusCode.UNAVAILABLE, "The accelerator was lost; the server is draining.")
    SHUTTING_DOWN = (grpc.StatusCode.UNAVAILABLE, "The server is draining; use another one.")
    INTERNAL = (grpc.StatusCode.INTERNAL, "A defect of the server; report the request id.")

    @property
    def code(self) -> grpc.StatusCode:
        return self.value[0]

    @property
    def meaning(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldViolation:
    """One thing wrong with one field of the request: `field` is its path, as `passages[3].text`."""

    field: str
    description: str


class ServiceError(Exception):
    """A failure with a declared reason.

    `metadata` are short facts for a program (ids, limits, allowed values). `violations` become a BadRequest,
    `resource` (type, name) a ResourceInfo, `retry_after_s` a RetryInfo.
    """

    reason: ClassVar[Reason] = Reason.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        reason: Reason | None = None,
        metadata: dict[str, str] | None = None,
        violations: tuple[FieldViolation, ...] = (),
        resource: tuple[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.error_reason = reason or self.reason
        self.metadata = metadata or {}
        self.violations = violations
        self.resource = resource
        self.retry_after_s = retry_after_s


class InvalidRequest(ServiceError):
    """The request breaks its contract. Carry all violations at once, not only the first."""

    reason = Reason.INVALID_REQUEST

    @classmethod
    def of(cls, *violations: FieldViolation, reason: Reason | None = None) -> "InvalidRequest":
        text = "; ".join(f"{v.field}: {v.description}" for v in violations)
        return cls(text, violations=violations, reason=reason)


class NotFound(ServiceError):
    """Something with this id does not exist for this caller (another tenant's thing looks the same)."""

    @classmethod
    def knowledge_base(cls, kb_id: str) -> "NotFound":
        return cls._of(Reason.KNOWLEDGE_BASE_NOT_FOUND, "knowledge base", kb_id)

    @classmethod
    def document(cls, document_id: str) -> "NotFound":
        return cls._of(Reason.DOCUMENT_NOT_FOUND, "document", document_id)

    @classmethod
    def job(cls, job_id: str) -> "NotFound":
        return cls._of(Reason.JOB_NOT_FOUND, "job", job_id)

    @classmethod
    def model(cls, model: str, allowed: tuple[str, ...]) -> "NotFound":
        error = cls._of(Reason.MODEL_NOT_FOUND, "model", model)
        error.metadata["allowed"] = ", ".join(allowed)
        return error

    @classmethod
    def _of(cls, reason: Reason, kind: str, name: str) -> "NotFound":
        shown = name[:80]
        return cls(f"{kind} {shown!r} not found", reason=reason, resource=(kind, shown))


class Overloaded(ServiceError):
    """Refused before any work was done; `retry_after_s` is an honest estimate."""

    reason = Reason.OVERLOADED


class DocumentError(ServiceError):
    """A document cannot be ingested; pass the reason, as UNSUPPORTED_FORMAT or NO_TEXT."""

    reason = Reason.UNREADABLE_DOCUMENT


class Unavailable(ServiceError):
    """Something this service depends on cannot be reached now; pass the reason."""

    reason = Reason.INDEX_UNAVAILABLE


class DeadlineExceeded(ServiceError):
    reason = Reason.DEADLINE_EXCEEDED
