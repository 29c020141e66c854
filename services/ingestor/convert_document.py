"""Documents, their metadata and blocks between the wire and the inside."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp
from pergamon.ingestor.v1 import document_pb2 as pb

from services.catalog.types import Document, DocumentState, OnDuplicate, UploadResult
from services.common.errors import FieldViolation, InvalidRequest, Reason
from services.common.validation import Violations
from services.domain.blocks import Block, BlockKind, DocumentKind, DocumentMetadata, ParseWarning
from services.domain.ids import KnowledgeBaseId
from services.ingestor.convert_knowledge_base import timestamp
from services.ingestor.uploads import Upload

MAX_NAME_CHARS = 500
_MAX_TEXT_CHARS = 1000
_MAX_ENTRIES = 64
_LABEL_KEY = re.compile(r"[a-z0-9_-]{1,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TEXT_FIELDS = ("title", "author", "document_type", "source_url")
_METADATA_FIELDS = tuple(field.name for field in pb.DocumentMetadata.DESCRIPTOR.fields)


def upload_in(message: pb.UploadHeader) -> Upload:
    found = Violations()
    name = message.name.strip()
    found.length("header.name", name, MAX_NAME_CHARS, least=1)
    found.check("\x00" not in name, "header.name", "holds a NUL character")
    found.check(bool(message.knowledge_base_id), "header.knowledge_base_id", "is required")
    found.request_id("header.request_id", message.request_id)
    sha256 = message.sha256.lower()
    found.check(not sha256 or _SHA256.fullmatch(sha256) is not None, "header.sha256", "must be 64 hex digits")
    found.length("header.password", message.password, 1000)
    policies = {
        pb.DUPLICATE_POLICY_UNSPECIFIED: OnDuplicate.REJECT,
        pb.DUPLICATE_POLICY_REJECT: OnDuplicate.REJECT,
        pb.DUPLICATE_POLICY_ALLOW: OnDuplicate.ALLOW,
    }
    policy = policies.get(message.on_duplicate)
    found.check(policy is not None, "header.on_duplicate", f"unknown value {message.on_duplicate}")
    metadata = metadata_in(message.metadata, found, "header.metadata")
    found.raise_if_any()
    return Upload(
        knowledge_base_id=KnowledgeBaseId(message.knowledge_base_id),
        name=name,
        metadata=metadata,
        on_duplicate=policy or OnDuplicate.REJECT,
        request_id=message.request_id,
        sha256=sha256,
        password=message.password,
    )


def metadata_in(message: pb.DocumentMetadata, found: Violations, where: str) -> DocumentMetadata:
    for field in _TEXT_FIELDS:
        found.length(f"{where}.{field}", getattr(message, field), _MAX_TEXT_CHARS)
    language = message.language
    found.check(
        not language or re.fullmatch(r"[a-z]{2,3}", language) is not None,
        f"{where}.language",
        "must be a code of ISO 639-1, as en or zh",
    )
    found.check(len(message.tags) <= _MAX_ENTRIES, f"{where}.tags", f"more than {_MAX_ENTRIES} tags")
    for position, tag in enumerate(message.tags[:_MAX_ENTRIES]):
        found.length(f"{where}.tags[{position}]", tag, 200, least=1)
    return DocumentMetadata(
        title=message.title,
        author=message.author,
        language=language,
        document_type=message.document_type,
        source_url=message.source_url,
        tags=tuple(message.tags),
        authoritative=message.authoritative,
        created_time=_moment(
            found, f"{where}.created_time", message.created_time if message.HasField("created_time") else None
        ),
        updated_time=_moment(
            found, f"{where}.updated_time", message.updated_time if message.HasField("updated_time") else None
        ),
        labels=_labels_in(message, found, where),
    )


def metadata_change(request: pb.UpdateDocumentRequest) -> Callable[[DocumentMetadata], DocumentMetadata]:
    """Takes the fields that the mask names from the request, and leaves the others."""
    paths = list(request.update_mask.paths) or list(_METADATA_FIELDS)
    for path in paths:
        if path not in _METADATA_FIELDS:
            raise InvalidRequest.of(
                FieldViolation(
                    field="update_mask", description=f"unknown path {path!r}; allowed: {', '.join(_METADATA_FIELDS)}"
                ),
                reason=Reason.UNKNOWN_FIELD_MASK_PATH,
            )
    found = Violations()
    asked = metadata_in(request.metadata, found, "metadata")
    found.raise_if_any()
    named = {path: getattr(asked, path) for path in paths}
    return lambda current: replace(current, **named)


def document_out(document: Document) -> pb.Document:
    failure = document.error
    kind = KINDS_OUT[document.kind] if document.kind else pb.DOCUMENT_KIND_UNSPECIFIED
    return pb.Document(
        id=document.id,
        knowledge_base_id=document.knowledge_base_id,
        name=document.name,
        state=_STATES_OUT[document.state],
        kind=kind,
        size_bytes=document.size_bytes,
        sha256=document.sha256,
        metadata=metadata_out(document.metadata),
        page_count=document.page_count,
        chunk_count=document.chunk_count,
        token_count=document.token_count,
        warnings=[warning_out(warning) for warning in document.warnings],
        failure=pb.DocumentFailure(reason=failure.reason, message=failure.message) if failure else None,
        retrievable=document.live_version is not None,
        created_time=timestamp(document.created_time),
        updated_time=timestamp(document.updated_time),
    )


def metadata_out(metadata: DocumentMetadata) -> pb.DocumentMetadata:
    return pb.DocumentMetadata(
        title=metadata.title,
        author=metadata.author,
        language=metadata.language,
        document_type=metadata.document_type,
        source_url=metadata.source_url,
        tags=metadata.tags,
        authoritative=metadata.authoritative,
        created_time=timestamp(metadata.created_time) if metadata.created_time else None,
        updated_time=timestamp(metadata.updated_time) if metadata.updated_time else None,
        labels={key: _label_out(value) for key, value in metadata.labels.items()},
    )


def warning_out(warning: ParseWarning) -> pb.DocumentWarning:
    return pb.DocumentWarning(code=warning.code, message=warning.message, page=warning.page or 0)


def outcome_out(result: UploadResult) -> pb.UploadOutcome.ValueType:
    return pb.UploadOutcome.Value(f"UPLOAD_OUTCOME_{result.value}")


def states_in(states: list[pb.DocumentState.ValueType], field: str) -> tuple[DocumentState, ...]:
    found = Violations()
    wanted = dict.fromkeys(states)  # a state said twice is said once: the catalogue bounds the values of a query
    for state in wanted:
        found.check(state in _STATES_IN, field, f"unknown value {state}")
    found.raise_if_any()
    return tuple(_STATES_IN[state] for state in wanted)


def block_out(block: Block) -> pb.Block:
    box = block.box
    return pb.Block(
        kind=_BLOCK_KINDS[block.kind],
        text=block.text,
        level=block.level,
        page=block.page or 0,
        box=pb.BoundingBox(page=box.page, x0=box.x0, y0=box.y0, x1=box.x1, y1=box.y1) if box else None,
        rows=[pb.TableRow(cells=row) for row in block.rows],
        header_rows=block.header_rows,
        code_language=block.code_language,
        start=block.start,
        end=block.end,
    )


_STATES_OUT = {state: pb.DocumentState.Value(f"DOCUMENT_STATE_{state.value}") for state in DocumentState}
_STATES_IN = {number: state for state, number in _STATES_OUT.items()}
_BLOCK_KINDS = {kind: pb.BlockKind.Value(f"BLOCK_KIND_{kind.value}") for kind in BlockKind}
KINDS_OUT = {kind: pb.DocumentKind.Value(f"DOCUMENT_KIND_{kind.value}") for kind in DocumentKind}


def _moment(found: Violations, field: str, stamp: Timestamp | None) -> datetime | None:
    if stamp is None:
        return None
    try:
        return stamp.ToDatetime(UTC)
    except (ValueError, OverflowError):
        found.add(field, "is not a valid time between the years 1 and 9999")
        return None


def _labels_in(message: pb.DocumentMetadata, found: Violations, where: str) -> dict[str, str | int | float | bool]:
    found.check(len(message.labels) <= _MAX_ENTRIES, f"{where}.labels", f"more than {_MAX_ENTRIES} labels")
    labels: dict[str, str | int | float | bool] = {}
    for key, value in message.labels.items():
        shown = f"{where}.labels[{key[:40]!r}]"
        found.check(_LABEL_KEY.fullmatch(key) is not None, shown, "keys are 1 to 63 of a-z, 0-9, _ and -")
        kind = value.WhichOneof("kind")
        if kind is None:
            found.add(shown, "has no value")
            continue
        plain: str | int | float | bool = getattr(value, kind)
        if isinstance(plain, str):
            found.length(shown, plain, _MAX_TEXT_CHARS)
        if isinstance(plain, float):
            found.check(math.isfinite(plain), shown, "must be a finite number")
        labels[key] = plain
    return labels


def _label_out(value: str | float | bool) -> pb.LabelValue:
    match value:
        case bool():
            return pb.LabelValue(bool_value=value)
        case int():
            return pb.LabelValue(int_value=value)
        case float():
            return pb.LabelValue(double_value=value)
        case str():
            return pb.LabelValue(string_value=value)
