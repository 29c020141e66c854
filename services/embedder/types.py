"""What a call to the embedder asks for, and what comes back."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from services.common.errors import ServiceError
from services.inference.types import InputType, Lane, Truncation


class DataType(StrEnum):
    """Element type of dense vectors in the reply."""

    FLOAT32 = "FLOAT32"
    FLOAT16 = "FLOAT16"


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseOutput:
    """Dense vectors of `model` (empty: the default)."""

    model: str
    data_type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseOutput:
    """Sparse vectors of `model`; the other fields are for BM25: average length in terms, language code or empty."""

    model: str
    bm25_average_length: float
    language: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedCall:
    """A checked request: at least one output is set."""

    texts: tuple[str, ...]
    input_type: InputType
    truncation: Truncation
    lane: Lane
    dense: DenseOutput | None
    sparse: SparseOutput | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseRow:
    """`indices` uint32 ascending, `values` float32, parallel."""

    indices: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReport:
    """What happened to one text. With an `error` it has no vectors."""

    error: ServiceError | None = None
    token_count: int = 0
    truncated: bool = False
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
    """In the order of the texts: `dense` float32 [texts, dimensions] and `sparse` rows, as far as asked for.

    The row of a text with an error is zero, or empty.
    """

    reports: tuple[TextReport, ...]
    dense: npt.NDArray[np.float32] | None = None
    sparse: tuple[SparseRow, ...] | None = None
    dense_model: str = ""
    sparse_model: str = ""
    timing: Timing = Timing()
