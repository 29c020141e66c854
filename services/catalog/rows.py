"""From rows to frozen values and back: the one place that knows how each type is stored."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import RowMapping

from services.catalog.job_types import Job, JobKind, JobState, Progress
from services.catalog.types import (
    Document,
    DocumentState,
    DocumentVersion,
    Failure,
    IndexVersion,
    KnowledgeBase,
    KnowledgeBaseStatistics,
    KnowledgeBaseType,
    RetrievalDefaults,
    SourceType,
    VersionState,
)
from services.domain.blocks import DocumentKind, DocumentMetadata, ParseWarning
from services.domain.chunks import Chunking, ChunkingStrategy, ChunkUnit
from services.domain.ids import DocumentId, DocVersionId, IndexVersionId, JobId, KnowledgeBaseId, TenantId
from services.domain.scores import SearchMode

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_time(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def to_us(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _time_or_none(us: int | None) -> datetime | None:
    return None if us is None else to_time(us)


def encode_chunking(chunking: Chunking) -> dict[str, Any]:
    return asdict(chunking)


def decode_chunking(stored: dict[str, Any]) -> Chunking:
    known: dict[str, Any] = {**stored}
    known["strategy"] = ChunkingStrategy(known["strategy"])
    known["unit"] = ChunkUnit(known["unit"])
    return Chunking(**known)


def encode_retrieval(retrieval: RetrievalDefaults) -> dict[str, Any]:
    return asdict(retrieval)


def decode_retrieval(stored: dict[str, Any]) -> RetrievalDefaults:
    known: dict[str, Any] = {**stored}
    known["mode"] = SearchMode(known["mode"])
    return RetrievalDefaults(**known)


def encode_metadata(metadata: DocumentMetadata) -> dict[str, Any]:
    """As JSON, without the fields that are unknown."""
    stored = {key: value for key, value in asdict(metadata).items() if value}
    for key in ("created_time", "updated_time"):
        if key in stored:
            stored[key] = stored[key].isoformat()
    if "tags" in stored:
        stored["tags"] = list(stored["tags"])
    return stored


def decode_metadata(stored: dict[str, Any]) -> DocumentMetadata:
    known = dict(stored)
    for key in ("created_time", "updated_time"):
        if key in known:
            known[key] = datetime.fromisoformat(known[key])
    if "tags" in known:
        known["tags"] = tuple(known["tags"])
    return DocumentMetadata(**known)


def merge_metadata(extracted: DocumentMetadata, caller: DocumentMetadata) -> DocumentMetadata:
    """What is known of a document: the caller's word where there is one, else the file's. Labels are joined."""
    merged = {**encode_metadata(extracted), **encode_metadata(caller)}
    labels = {**extracted.labels, **caller.labels}
    if labels:
        merged["labels"] = labels
    return decode_metadata(merged)


def encode_warnings(warnings: tuple[ParseWarning, ...]) -> list[dict[str, Any]]:
    return [asdict(warning) for warning in warnings]


def decode_warnings(stored: list[dict[str, Any]]) -> tuple[ParseWarning, ...]:
    return tuple(ParseWarning(**warning) for warning in stored)


def to_index_version(row: RowMapping, *, prefix: str = "") -> IndexVersion:
    """`prefix` stands before the column names where the row was joined to another table."""
    return IndexVersion(
        id=IndexVersionId(row[prefix + "id"]),
        knowledge_base_id=KnowledgeBaseId(row[prefix + "kb_id"]),
        collection=row[prefix + "collection"],
        dimensions=row[prefix + "dimensions"],
        tokenizer_version=row[prefix + "tokenizer_version"],
        chunk_count=row[prefix + "chunk_count"],
        bm25_length_total=row[prefix + "bm25_length_total"],
        written_average_length=row[prefix + "written_average_length"],
    )


def to_knowledge_base(row: RowMapping, index: IndexVersion, statistics: KnowledgeBaseStatistics) -> KnowledgeBase:
    return KnowledgeBase(
        id=KnowledgeBaseId(row["id"]),
        tenant_id=TenantId(row["tenant_id"]),
        name=row["name"],
        description=row["description"],
        type=KnowledgeBaseType(row["type"]),
        chunking=decode_chunking(row["chunking"]),
        effective_chunk_size=row["effective_chunk_size"],
        retrieval=decode_retrieval(row["retrieval"]),
        embedding_model=row["embedding_model"],
        sparse_model=row["sparse_model"],
        language=row["language"],
        labels=row["labels"],
        source_type=SourceType(row["source_type"]),
        index=index,
        statistics=statistics,
        created_time=to_time(row["created_us"]),
        updated_time=to_time(row["updated_us"]),
    )


def _failure(row: RowMapping) -> Failure | None:
    if row["error_reason"] is None:
        return None
    return Failure(reason=row["error_reason"], message=row["error_message"] or "")


def to_document(row: RowMapping) -> Document:
    return Document(
        id=DocumentId(row["id"]),
        tenant_id=TenantId(row["tenant_id"]),
        knowledge_base_id=KnowledgeBaseId(row["kb_id"]),
        name=row["name"],
        kind=None if row["kind"] is None else DocumentKind(row["kind"]),
        state=DocumentState(row["state"]),
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
        metadata=decode_metadata(row["metadata"]),
        page_count=row["page_count"],
        chunk_count=row["chunk_count"],
        token_count=row["token_count"],
        warnings=decode_warnings(row["warnings"]),
        error=_failure(row),
        newest_version=DocVersionId(row["newest_version"]),
        live_version=None if row["live_version"] is None else DocVersionId(row["live_version"]),
        created_time=to_time(row["created_us"]),
        updated_time=to_time(row["updated_us"]),
    )


def to_version(row: RowMapping) -> DocumentVersion:
    return DocumentVersion(
        id=DocVersionId(row["id"]),
        tenant_id=TenantId(row["tenant_id"]),
        knowledge_base_id=KnowledgeBaseId(row["kb_id"]),
        document_id=DocumentId(row["document_id"]),
        index_version=IndexVersionId(row["index_version"]),
        state=VersionState(row["state"]),
        hidden=bool(row["hidden"]),
        sha256=row["sha256"],
        size_bytes=row["size_bytes"],
        blob_key=row["blob_key"],
        caller_metadata=decode_metadata(row["caller_metadata"]),
        chunk_count=row["chunk_count"],
        bm25_length_total=row["bm25_length_total"],
        retired_time=_time_or_none(row["retired_us"]),
    )


def to_job(row: RowMapping) -> Job:
    return Job(
        id=JobId(row["id"]),
        tenant_id=TenantId(row["tenant_id"]),
        knowledge_base_id=KnowledgeBaseId(row["kb_id"]),
        document_id=None if row["document_id"] is None else DocumentId(row["document_id"]),
        version=None if row["version"] is None else DocVersionId(row["version"]),
        kind=JobKind(row["kind"]),
        state=JobState(row["state"]),
        stage=row["stage"],
        counters={stage: Progress(done=done, total=total) for stage, (done, total) in row["counters"].items()},
        checkpoint=row["checkpoint"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        not_before=to_time(row["not_before_us"]),
        lease_owner=row["lease_owner"],
        lease_expires=_time_or_none(row["lease_expires_us"]),
        error=_failure(row),
        warnings=decode_warnings(row["warnings"]),
        created_time=to_time(row["created_us"]),
        updated_time=to_time(row["updated_us"]),
        finished_time=_time_or_none(row["finished_us"]),
        change_seq=row["change_seq"],
    )
