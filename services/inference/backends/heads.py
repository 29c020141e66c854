# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What BGE-M3 computes a token beside its dense vector: lexical weights and vectors for late interaction.

Chen et al. 2024 (arXiv:2402.03216), section 3.2: a term weighs relu(w . h + b), its maximum where a text has it more
than once; a token's vector is W h + b of length one, the first token left out.
"""

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
from tokenizers import Tokenizer

from services.inference.backends.packing import Packed
from services.inference.backends.rows import unit_rows
from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.checkpoint import TOKENIZER_FILE, EncoderConfig, Weights
from services.inference.errors import ModelInvalid
from services.inference.types import FloatArray, IntArray, Output, SparseVector

SPARSE_HEAD, MULTI_VECTOR_HEAD = "sparse_linear", "colbert_linear"


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """float32 [out, in] and [out]."""

    weight: FloatArray
    bias: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenHeads:
    """The heads that a card promises; `silent_ids` are the special tokens, which have no lexical weight."""

    sparse: Linear | None
    multi_vector: Linear | None
    silent_ids: IntArray

    @classmethod
    def of(cls, folder: Path, card: ModelCard, config: EncoderConfig, weights: Weights) -> "TokenHeads":
        """Raises `ModelInvalid` where a promised head is missing, misshapen, not finite or all zeros."""
        wants_sparse = Output.SPARSE in card.extra_outputs
        wants_multi = Output.MULTI_VECTOR in card.extra_outputs
        rows = card.multi_vector_dimensions
        return cls(
            sparse=_linear(weights, SPARSE_HEAD, 1, config.hidden) if wants_sparse else None,
            multi_vector=_linear(weights, MULTI_VECTOR_HEAD, rows, config.hidden) if wants_multi else None,
            silent_ids=special_ids(folder, config) if wants_sparse else np.zeros(0, np.int32),
        )

    @classmethod
    def none(cls) -> "TokenHeads":
        return cls(sparse=None, multi_vector=None, silent_ids=np.zeros(0, np.int32))

    def terms(self, packed: Packed, weights: FloatArray) -> tuple[SparseVector, ...]:
        """One vector a text, from the weights of its tokens: float32 [tokens], already without negative ones.

        Sorted by text and id, of equal ones the largest: no [texts, vocabulary] matrix is made. A NaN is kept.
        """
        text = np.repeat(np.arange(packed.size), packed.lengths)
        counts = ~(weights <= 0) & ~np.isin(packed.ids, self.silent_ids)
        text, ids, weights = text[counts], packed.ids[counts], weights[counts]
        order = np.lexsort((weights, ids, text))  # NaN sorts last, as the largest
        text, ids, weights = text[order], ids[order], weights[order]
        is_last = np.ones(len(ids), np.bool_)
        is_last[:-1] = (text[1:] != text[:-1]) | (ids[1:] != ids[:-1])
        text, ids, weights = text[is_last], ids[is_last].astype(np.uint32), weights[is_last]
        ends = np.searchsorted(text, np.arange(packed.size + 1))
        return tuple(
            SparseVector(indices=ids[start:end], values=weights[start:end]) for start, end in pairwise(ends.tolist())
        )


def reads_first_only(card: ModelCard) -> bool:
    """Whether of the last layer only the first tokens matter, so that nothing else need be computed there."""
    return card.kind is ModelKind.RERANKER or (card.pooling is Pooling.CLS and not card.extra_outputs)


def scored_tokens(packed: Packed) -> IntArray:
    """Which tokens have a vector for late interaction: all but the first of each text, as indices into [tokens]."""
    return np.flatnonzero(packed.offsets > 0).astype(np.int32)


def matrices(packed: Packed, vectors: FloatArray) -> tuple[FloatArray, ...]:
    """The vectors of `scored_tokens`, made of unit length and given to their texts."""
    ends = np.cumsum(np.maximum(packed.lengths - 1, 0))
    return tuple(np.split(unit_rows(vectors), ends[:-1]))


def special_ids(folder: Path, config: EncoderConfig) -> IntArray:
    """The ids that stand for no text: what the tokenizer puts around an empty one, padding, and the unknown token."""
    try:
        path = folder / TOKENIZER_FILE
        tokenizer = Tokenizer.from_file(str(path))
        model = cast("dict[str, Any]", json.loads(path.read_bytes())["model"])
        around = tokenizer.encode("", add_special_tokens=True).ids
        unknown = model.get("unk_id")
        if unknown is None and model.get("unk_token") is not None:
            unknown = tokenizer.token_to_id(str(model["unk_token"]))
    except Exception as error:  # the library raises bare Exception for a malformed file
        raise ModelInvalid(f"tokenizer of model {folder.name!r} cannot be read; pull it again") from error
    return np.array(sorted({*around, config.pad_id, *([] if unknown is None else [int(unknown)])}), np.int32)


def _linear(weights: Weights, name: str, rows: int, columns: int) -> Linear:
    return Linear(
        weights.head(f"{name}.weight", (rows, columns)).astype(np.float32),
        weights.get(f"{name}.bias", (rows,)).astype(np.float32),
    )
