"""What a call to the embedder asks for, and what comes back."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from services.common.errors import ServiceError
from services.inference.types import FloatArray, InputType, Lane, SparseVector, Truncation


class DataType(StrEnum):
    """Element type of dense vectors in the reply."""

    FLOAT32 = "FLOAT32"
    FLOAT16 = "FLOAT16"
    BFLOAT16 = "BFLOAT16"
    INT8 = "INT8"
    UBINARY = "UBINARY"


class Warned(StrEnum):
    """What a caller should know of a reply that is as asked for."""

    DIMENSIONS_NOT_CLAIMED = "DIMENSIONS_NOT_CLAIMED"


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseOutput:
    """Dense vectors of `model` (empty: the default), cut to `dimensions` (0: whole)."""

    model: str
    data_type: DataType = DataType.FLOAT32
    dimensions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseOutput:
    """Sparse vectors of `model` (empty: bm25); the other fields are for BM25: average length in terms, language code
    or empty."""

    model: str
    bm25_average_length: float = 0.0
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiVectorOutput:
    """Vectors of tokens of `model` (empty: the default)."""

    model: str
    data_type: DataType = DataType.FLOAT32


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedCall:
    """A checked request: at least one output is set. `instruction` replaces the prefix of the model's card."""

    texts: tuple[str, ...]
    input_type: InputType
    truncation: Truncation
    lane: Lane
    dense: DenseOutput | None = None
    sparse: SparseOutput | None = None
    multi_vector: MultiVectorOutput | None = None
    instruction: str | None = None


class TextReport(NamedTuple):
    """What happened to one text. With an `error` it has no vectors.

    `original_token_count`: tokens of a truncated text in full, 0 where they were not counted. A tuple, as one is made
    for every text of every call.
    """

    error: ServiceError | None = None
    token_count: int = 0
    truncated: bool = False
    original_token_count: int = 0
    bm25_length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Milliseconds by stage."""

    tokenize_ms: float = 0.0
    queue_ms: float = 0.0
    inference_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbedReply:
    """In the order of the texts, as far as asked for: `dense` float32 [texts, dimensions], `sparse` one vector a text,
    `multi_vector` one float32 [tokens, dimensions] a text.

    Dense rows and those of multi-vectors have unit length. The row of a text with an error is zero, or empty.
    """

    reports: tuple[TextReport, ...]
    dense: FloatArray | None = None
    sparse: tuple[SparseVector, ...] | None = None
    multi_vector: tuple[FloatArray, ...] | None = None
    dense_model: str = ""
    sparse_model: str = ""
    multi_vector_model: str = ""
    warnings: tuple[Warned, ...] = ()
    timing: Timing = Timing()
