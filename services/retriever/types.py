"""What a search asks for, what travels between its stages, and what comes back."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from services.catalog.types import DisplayedDocument
from services.domain.filters import Filter
from services.domain.ids import KnowledgeBaseId, TenantId
from services.domain.scores import PassageScores, SearchMode
from services.index.types import Floats, Hit, SparseVector, StoredPassage


class Combination(StrEnum):
    """How several knowledge bases are combined: each its own results, or one pool."""

    ROUTED = "ROUTED"
    MERGED = "MERGED"


class StageState(StrEnum):
    OK = "OK"
    SKIPPED = "SKIPPED"
    DEGRADED = "DEGRADED"


class DropReason(StrEnum):
    """Why a candidate is not among the results; VANISHED: its document was deleted, or never live for this search."""

    THRESHOLD = "THRESHOLD"
    DUPLICATE = "DUPLICATE"
    CUT = "CUT"
    VANISHED = "VANISHED"


class ContextFormat(StrEnum):
    BLOCKS = "BLOCKS"
    DOCUMENTS = "DOCUMENTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCall:
    """A checked request. None means: as each knowledge base says.

    `filters` are the credential's and the request's, all of which must hold. `for_context`: top_k None means the
    knowledge base's result_count, not its top_k.
    """

    tenant_id: TenantId
    query: str
    knowledge_base_ids: tuple[KnowledgeBaseId, ...]
    filters: tuple[Filter, ...] = ()
    combination: Combination = Combination.ROUTED
    mode: SearchMode | None = None
    top_k: int | None = None
    candidates: int | None = None
    rerank: bool | None = None
    rerank_model: str = ""
    threshold: float | None = None
    dense_weight: float | None = None
    bm25_weight: float | None = None
    include_dropped: bool = False
    for_context: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCall:
    """How to make a context of what was found. `by_knowledge_base`: each has a heading, and its share of the room."""

    format: ContextFormat = ContextFormat.BLOCKS
    by_knowledge_base: bool = False
    budget_tokens: int = 4_000
    max_blocks: int = 12


class EmbeddingNeed(NamedTuple):
    """What a query must become for one knowledge base; None: not needed. Equal needs share one embedding.

    `language` (ISO 639-1, empty where there is none) is that of the documents, for the BM25 analysis.
    """

    dense_model: str | None
    sparse_model: str | None
    tokenizer_version: str
    language: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueryVectors:
    """The vectors of a query, as far as asked for. `degraded` says why the dense one is missing though it was."""

    dense: Floats | None = None
    sparse: SparseVector | None = None
    truncated: bool = False
    degraded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A fused hit: a passage that may be among the results. `member` is its knowledge base's place in the group."""

    member: int
    hit: Hit
    fused_rank: int
    scores: PassageScores


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A result."""

    knowledge_base_name: str
    stored: StoredPassage
    document: DisplayedDocument
    fused_rank: int
    scores: PassageScores


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    candidate: Candidate
    reason: DropReason


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    stage: str
    state: StageState
    reason: str
    duration_ms: float
    candidates_in: int
    candidates_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReply:
    """`passages` best first; with ROUTED, grouped by knowledge base in the order of the request."""

    passages: tuple[Passage, ...]
    stages: tuple[StageReport, ...]
    dropped: tuple[Dropped, ...]
    total_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """`passages` are positions in the reply, in the order of the text; `omitted` counts those that did not fit."""

    text: str
    token_count: int
    passages: tuple[int, ...]
    omitted: int
