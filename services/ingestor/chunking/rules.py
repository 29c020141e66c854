"""Which chunking settings are allowed, and what a model's input limit leaves of them."""

from typing import Final

from services.common.errors import FieldViolation
from services.domain.chunks import Chunking, ChunkUnit

MAX_SIZE: Final = 10_000
# Tokens of multilingual-e5 for one English word (581 for 400): the dearest of the vocabularies in use for plain prose.
_TOKENS_PER_WORD: Final = 1.45
# What title, section path and special tokens take of the input, as a rule.
_TYPICAL_PREFIX_TOKENS: Final = 24


def validate(chunking: Chunking, *, field: str = "chunking") -> list[FieldViolation]:
    """Everything that is wrong with `chunking`; empty when it can be used. `field` is its path in the request."""
    found: list[FieldViolation] = []
    if not 1 <= chunking.size <= MAX_SIZE:
        found.append(_violation(f"{field}.size", chunking.size, f"1 to {MAX_SIZE}"))
    if not 0 <= chunking.overlap < max(chunking.size, 1):
        found.append(_violation(f"{field}.overlap", chunking.overlap, f"0 to size - 1 ({chunking.size - 1})"))
    if not 0 <= chunking.min_size <= max(chunking.size, 0):
        found.append(_violation(f"{field}.min_size", chunking.min_size, f"0 to size ({chunking.size})"))
    return found


def effective_size(chunking: Chunking, max_tokens: int) -> int:
    """The size, in the chunking's unit, that plain prose reaches under a model's limit; to be stored and shown.

    TOKENS: what a typical prefix leaves of `max_tokens`. WORDS: an estimate for languages with spaces, as the real
    limit is counted in tokens, chunk by chunk. Never above `chunking.size`.
    """
    room = max(1, max_tokens - _TYPICAL_PREFIX_TOKENS)
    if chunking.unit is ChunkUnit.WORDS:
        room = max(1, int(room / _TOKENS_PER_WORD))
    return min(chunking.size, room)


def _violation(field: str, value: int, allowed: str) -> FieldViolation:
    return FieldViolation(field=field, description=f"is {value}; allowed: {allowed}")
