"""The frozen types that tokenizer, batcher, backends and engine exchange."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int32]
UintArray: TypeAlias = npt.NDArray[np.uint32]


class InputType(StrEnum):
    """What a text is, which decides the prefix that the model's card puts in front of it."""

    QUERY = "QUERY"
    PASSAGE = "PASSAGE"


class Truncation(StrEnum):
    """What to do with a text that is longer than the model's input: refuse it, or cut its end or its beginning."""

    FAIL = "FAIL"
    RIGHT = "RIGHT"
    LEFT = "LEFT"


class Lane(StrEnum):
    """Which queue work waits in. INTERACTIVE goes first; BULK has a guaranteed share."""

    INTERACTIVE = "INTERACTIVE"
    BULK = "BULK"


class Output(StrEnum):
    """What a model computes for a text: one vector, weights of terms, a vector a token, or a score of a pair."""

    DENSE = "DENSE"
    SPARSE = "SPARSE"
    MULTI_VECTOR = "MULTI_VECTOR"
    LOGIT = "LOGIT"


Outputs: TypeAlias = frozenset[Output]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoded:
    """One text (or pair) as the model sees it, special tokens included.

    `ids` and `type_ids` are int32 [tokens] of equal length; `truncated` says that a part of the text is missing.
    `original_token_count` is what a truncated text had in full, 0 where the text was too long even to be counted.
    """

    ids: IntArray
    type_ids: IntArray
    truncated: bool = False
    original_token_count: int = 0

    @property
    def token_count(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenBatch:
    """The input of one forward pass: int32 [n, t] each, padded on the right; `mask` is 1 on real tokens.

    `outputs` is what is wanted of it, some or all of what the model gives.
    """

    ids: IntArray
    mask: IntArray
    type_ids: IntArray
    outputs: Outputs

    @property
    def size(self) -> int:
        return self.ids.shape[0]

    @property
    def padded_tokens(self) -> int:
        return self.ids.shape[0] * self.ids.shape[1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseVector:
    """Term weights: `indices` uint32 ascending, `values` float32 > 0, of equal length."""

    indices: UintArray
    values: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchOutput:
    """What one pass over n texts gives; at least the outputs that were wanted are set.

    `dense` float32 [n, dimensions], pooled, unit length. `sparse` n vectors. `multi_vector` n matrices float32
    [tokens of the text, dimensions], rows of unit length, special tokens included as far as the model scores them.
    `logits` float32 [n]. A row that the model could not compute holds NaN; the batcher makes it an error of that item.
    """

    dense: FloatArray | None = None
    sparse: tuple[SparseVector, ...] | None = None
    multi_vector: tuple[FloatArray, ...] | None = None
    logits: FloatArray | None = None


class ItemOutput(NamedTuple):
    """What one item yields; at least the outputs that were wanted of it are set."""

    dense: FloatArray | None = None
    sparse: SparseVector | None = None
    multi_vector: FloatArray | None = None
    logit: float | None = None
