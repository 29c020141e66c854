"""The frozen values the catalogue gives out and takes in. Times are aware, in UTC."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from services.domain.blocks import DocumentKind, DocumentMetadata, ParseWarning
from services.domain.chunks import Chunking
from services.domain.ids import DocumentId, DocVersionId, IndexVersionId, KnowledgeBaseId, TenantId
from services.domain.scores import SearchMode

T = TypeVar("T")


class KnowledgeBaseType(StrEnum):
    """VECTOR is chunked, embedded and searched; DOCUMENT is returned whole."""

    VECTOR = "VECTOR"
    DOCUMENT = "DOCUMENT"


class SourceType(StrEnum):
    MANUAL = "MANUAL"
    WEB = "WEB"
    SHAREPOINT = "SHAREPOINT"


class DocumentState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class VersionState(StrEnum):
    """The life of one version of a document. Only LIVE is searched, and a document has at most one LIVE version."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    LIVE = "LIVE"
    RETIRED = "RETIRED"
    SUPERSEDED = "SUPERSEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    DELETED = "DELETED"


class OnDuplicate(StrEnum):
    """What an upload does when the knowledge base holds the same bytes under another name."""

    REJECT = "REJECT"
    ALLOW = "ALLOW"


class UploadResult(StrEnum):
    NEW = "NEW"
    REPLACEMENT = "REPLACEMENT"
    UNCHANGED = "UNCHANGED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list; `next_page_token` is empty on the last one."""

    entries: tuple[T, ...]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalDefaults:
    """How a knowledge base is searched when the request does not say. `threshold` is a probability, 0 is off."""

    mode: SearchMode = SearchMode.HYBRID
    top_k: int = 5
    result_count: int = 12
    candidates: int = 50
    fusion: bool = True
    dense_weight: float = 1.0
    bm25_weight: float = 1.0
    rerank: bool = False
    threshold: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexVersion:
    """One build of a knowledge base's index.

    `chunk_count` and `bm25_length_total` (terms) cover the live versions of its documents. `written_average_length` is
    the average its sparse vectors were computed with, 0 before the first document; it drifts from `average_length`.
    """

    id: IndexVersionId
    knowledge_base_id: KnowledgeBaseId
    collection: str
    dimensions: int
    tokenizer_version: str
    chunk_count: int = 0
    bm25_length_total: int = 0
    written_average_length: float = 0.0

    @property
    def average_length(self) -> float:
        """Terms per chunk over the live documents; 0.0 when there is none."""
        return self.bm25_length_total / self.chunk_count if self.chunk_count else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeBaseStatistics:
    """Counts over the documents that are not deleted; chunks and tokens are those of live versions."""

    documents: dict[DocumentState, int] = field(default_factory=dict[DocumentState, int])
    chunk_count: int = 0
    token_count: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeBaseSpec:
    """What a new knowledge base is made of. `effective_chunk_size` is `chunking.size` after the model's input limit."""

    name: str
    embedding_model: str
    sparse_model: str
    collection: str
    dimensions: int
    tokenizer_version: str
    description: str = ""
    type: KnowledgeBaseType = KnowledgeBaseType.VECTOR
    chunking: Chunking = field(default_factory=Chunking)
    effective_chunk_size: int = 0
    retrieval: RetrievalDefaults = field(default_factory=RetrievalDefaults)
    labels: dict[str, str] = field(default_factory=dict[str, str])
    language: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeBaseChange:
    """Fields to set; None leaves a field as it is. The immutable ones may only be given with their present value."""

    name: str | None = None
    description: str | None = None
    labels: dict[str, str] | None = None
    retrieval: RetrievalDefaults | None = None
    chunking: Chunking | None = None
    embedding_model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeBase:
    id: KnowledgeBaseId
    tenant_id: TenantId
    name: str
    description: str
    type: KnowledgeBaseType
    chunking: Chunking
    effective_chunk_size: int
    retrieval: RetrievalDefaults
    embedding_model: str
    sparse_model: str
    language: str
    labels: dict[str, str]
    source_type: SourceType
    index: IndexVersion
    statistics: KnowledgeBaseStatistics
    created_time: datetime
    updated_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why something did not happen: a `Reason` name for programs, a message for people."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document as its newest version stands.

    `state`, `size_bytes`, `sha256` and `error` are the newest version's, except that a replacement which failed or was
    cancelled leaves the state DONE beside its error. `metadata`, counts and `warnings` are the live version's where
    there is one. `live_version` is None until a version is searchable.
    """

    id: DocumentId
    tenant_id: TenantId
    knowledge_base_id: KnowledgeBaseId
    name: str
    kind: DocumentKind | None
    state: DocumentState
    size_bytes: int
    sha256: str
    metadata: DocumentMetadata
    page_count: int
    chunk_count: int
    token_count: int
    warnings: tuple[ParseWarning, ...]
    error: Failure | None
    newest_version: DocVersionId
    live_version: DocVersionId | None
    created_time: datetime
    updated_time: datetime

    @property
    def older_version_live(self) -> bool:
        """Whether what is searched is not the newest upload."""
        return self.live_version is not None and self.live_version != self.newest_version


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadSpec:
    """One upload whose bytes are stored already. `blob_key` is where, and belongs to this upload alone."""

    name: str
    sha256: str
    size_bytes: int
    metadata: DocumentMetadata = field(default_factory=DocumentMetadata)
    request_id: str = ""
    on_duplicate: OnDuplicate = OnDuplicate.REJECT
    blob_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOutcome:
    """`job_id` is None where nothing is left to do. `blob_key` is where the bytes of the version are: another key than
    that of the upload, where the same bytes or the same request came before."""

    result: UploadResult
    document_id: DocumentId
    version: DocVersionId
    job_id: str | None
    blob_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStats:
    """What ingestion found out. `metadata` is what the file says about itself; the catalogue lets the caller's win."""

    chunk_count: int
    token_count: int
    bm25_length_total: int
    page_count: int = 0
    metadata: DocumentMetadata = field(default_factory=DocumentMetadata)
    warnings: tuple[ParseWarning, ...] = ()
    kind: DocumentKind | None = None
    written_average_length: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentVersion:
    """One upload of a document. `hidden` holds while points of it may exist that nobody may see."""

    id: DocVersionId
    tenant_id: TenantId
    knowledge_base_id: KnowledgeBaseId
    document_id: DocumentId
    index_version: IndexVersionId
    state: VersionState
    hidden: bool
    sha256: str
    size_bytes: int
    blob_key: str
    caller_metadata: DocumentMetadata
    chunk_count: int
    bm25_length_total: int
    retired_time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedKnowledgeBase:
    """What a search needs to know about one knowledge base. Points of `hidden_doc_versions` must not be found."""

    id: KnowledgeBaseId
    name: str
    type: KnowledgeBaseType
    retrieval: RetrievalDefaults
    embedding_model: str
    sparse_model: str
    language: str
    index: IndexVersion
    hidden_doc_versions: tuple[DocVersionId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSnapshot:
    """One consistent moment of several knowledge bases, in the order they were asked for."""

    knowledge_bases: tuple[SearchedKnowledgeBase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayedDocument:
    """What is shown of the document a passage came from."""

    document_id: DocumentId
    knowledge_base_id: KnowledgeBaseId
    name: str
    kind: DocumentKind | None
    page_count: int
    metadata: DocumentMetadata
    updated_time: datetime
