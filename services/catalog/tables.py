"""The schema: tables and indexes, with the types of their columns.

Times are integers, microseconds since 1970 UTC (columns `*_us`), so that both databases compare them alike and the
caller's clock decides. A change here needs a new file in `migrations/versions`.
"""

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData()

BIG = BigInteger().with_variant(Integer(), "sqlite")


def _big(name: str, *, default: int | None = None, nullable: bool = False) -> Column[int]:
    server = None if default is None else text(str(default))
    return Column(name, BIG, nullable=nullable, server_default=server)


def _str(name: str, length: int = 64, *, primary_key: bool = False, nullable: bool = False) -> Column[str]:
    return Column(name, String(length), primary_key=primary_key, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def _json(name: str) -> Column[Any]:
    return Column(name, JSON, nullable=False)


knowledge_bases = Table(
    "knowledge_bases",
    metadata,
    _str("id", primary_key=True),
    _str("tenant_id", 128),
    _text("name"),
    _text("description"),
    _str("type", 16),
    _json("chunking"),
    Column("effective_chunk_size", Integer, nullable=False),
    _json("retrieval"),
    _text("embedding_model"),
    _text("sparse_model"),
    _str("language", 16),
    _json("labels"),
    _str("source_type", 16),
    _big("live_index_version", nullable=True),
    _big("created_us"),
    _big("updated_us"),
    _big("deleted_us", nullable=True),
    Index("ix_knowledge_bases_tenant", "tenant_id", "id"),
)

index_versions = Table(
    "index_versions",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=True),
    _str("kb_id"),
    _text("collection"),
    Column("dimensions", Integer, nullable=False),
    _text("tokenizer_version"),
    _big("chunk_count", default=0),
    _big("bm25_length_total", default=0),
    Column("written_average_length", Float, nullable=False, server_default=text("0")),
    _big("created_us"),
    Index("ix_index_versions_kb", "kb_id"),
    sqlite_autoincrement=True,
)

documents = Table(
    "documents",
    metadata,
    _str("id", primary_key=True),
    _str("tenant_id", 128),
    _str("kb_id"),
    _text("name"),
    _str("kind", 16, nullable=True),
    _str("state", 16),
    _big("size_bytes"),
    _str("sha256"),
    _json("metadata"),
    Column("page_count", Integer, nullable=False, server_default=text("0")),
    _big("chunk_count", default=0),
    _big("token_count", default=0),
    _json("warnings"),
    _str("error_reason", nullable=True),
    _text("error_message", nullable=True),
    _big("newest_version"),
    _big("live_version", nullable=True),
    _big("created_us"),
    _big("updated_us"),
    _big("deleted_us", nullable=True),
    Index("ix_documents_kb", "kb_id", "id"),
    Index(
        "ux_documents_name",
        "kb_id",
        "name",
        unique=True,
        sqlite_where=text("deleted_us IS NULL"),
        postgresql_where=text("deleted_us IS NULL"),
    ),
    # Holds all that the statistics of a knowledge base are counted from, so that counting reads the index alone.
    Index("ix_documents_statistics", "kb_id", "deleted_us", "state", "size_bytes", "chunk_count", "token_count"),
)

doc_versions = Table(
    "doc_versions",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=True),
    _str("tenant_id", 128),
    _str("kb_id"),
    _str("document_id"),
    _big("index_version"),
    _str("state", 16),
    Column("hidden", Boolean, nullable=False),
    _str("sha256"),
    _big("size_bytes"),
    _text("blob_key"),
    _json("caller_metadata"),
    _json("extracted_metadata"),
    _big("chunk_count", default=0),
    _big("bm25_length_total", default=0),
    _big("created_us"),
    _big("retired_us", nullable=True),
    Index("ix_doc_versions_document", "document_id", "id"),
    Index("ix_doc_versions_bytes", "kb_id", "sha256"),
    Index("ix_doc_versions_blob", "kb_id", "blob_key"),
    Index(
        "ix_doc_versions_hidden",
        "kb_id",
        "hidden",
        "id",
        sqlite_where=text("hidden = 1"),
        postgresql_where=text("hidden"),
    ),
    sqlite_autoincrement=True,
)

jobs = Table(
    "jobs",
    metadata,
    _str("id", primary_key=True),
    _str("tenant_id", 128),
    _str("kb_id"),
    _str("document_id", nullable=True),
    _big("version", nullable=True),
    _str("kind", 32),
    _str("state", 16),
    _text("stage"),
    _json("counters"),
    Column("checkpoint", JSON(none_as_null=True), nullable=True),
    Column("attempt", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    _big("not_before_us"),
    _str("lease_owner", 256, nullable=True),
    _big("lease_expires_us", nullable=True),
    _str("error_reason", nullable=True),
    _text("error_message", nullable=True),
    _json("warnings"),
    _big("created_us"),
    _big("updated_us"),
    _big("finished_us", nullable=True),
    _big("change_seq"),
    # The queue: the distinct knowledge bases with waiting work of a kind, and the oldest job of each.
    Index("ix_jobs_queue", "state", "kind", "kb_id", "created_us", "id"),
    Index("ix_jobs_lease", "state", "lease_expires_us"),
    Index("ix_jobs_kb", "kb_id", "id"),
    Index("ix_jobs_tenant", "tenant_id", "id"),
    Index("ix_jobs_document", "document_id", "state"),
    Index("ix_jobs_finished", "finished_us"),
)

requests = Table(
    "requests",
    metadata,
    _str("tenant_id", 128, primary_key=True),
    _str("scope", 128, primary_key=True),
    _str("request_id", 256, primary_key=True),
    _str("fingerprint"),
    _json("answer"),
    _big("created_us"),
    Index("ix_requests_created", "created_us"),
)
