"""How much of a text fits: words and tokens between any two positions, by bisection."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from services.domain.chunks import ChunkUnit

_CJK: Final = "\u3041-\u309f\u30a1-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
# Vowel signs are no letters to `\\w`, but no word ends at one.
_MARKS: Final = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e\u1780-\u17d3"
_WORD: Final = re.compile(rf"[{_CJK}]|(?:(?![{_CJK}])[^\W_]|[{_MARKS}])+")
_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+")
# A chunk of one unit is never longer than this, whatever counts as a word: base64, or a line of dashes.
_MAX_CHARS_PER_UNIT: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What one chunk may hold: `units` of `unit`, and at most `tokens`."""

    unit: ChunkUnit
    units: int
    tokens: int


class Ruler:
    """Positions of the words and tokens of a text."""

    def __init__(self, text: str, token_starts: list[int]) -> None:
        self._length = len(text)
        self._text = text
        pattern = _ASCII_WORD if text.isascii() else _WORD
        self._word = pattern
        self._words = array("Q", (match.start() for match in pattern.finditer(text)))
        self._tokens = array("Q", token_starts)

    def words(self, start: int, end: int) -> int:
        return bisect_left(self._words, end) - bisect_left(self._words, start)

    def tokens(self, start: int, end: int) -> int:
        return bisect_left(self._tokens, end) - bisect_left(self._tokens, start)

    def units(self, unit: ChunkUnit, start: int, end: int) -> int:
        return self.words(start, end) if unit is ChunkUnit.WORDS else self.tokens(start, end)

    def fits(self, room: Room, start: int, end: int) -> bool:
        return end <= self.reach(room, start)

    def reach(self, room: Room, start: int) -> int:
        """The furthest end of a chunk that begins at `start`; always beyond it."""
        if room.unit is ChunkUnit.WORDS:
            # The rest of a word that was torn before `start` is a word of this chunk.
            end = _nth(self._words, start, room.units - self._is_inside_word(start), self._length)
        else:
            end = _nth(self._tokens, start, room.units, self._length)
        end = min(
            end,
            _nth(self._tokens, start, room.tokens, self._length),
            start + room.units * _MAX_CHARS_PER_UNIT,
        )
        return min(self._length, max(end, start + 1))

    def _is_inside_word(self, position: int) -> bool:
        match = self._word.match(self._text, position - 1, position + 1) if position else None
        return match is not None and match.end() > position

    def back(self, unit: ChunkUnit, end: int, units: int) -> int:
        """Where the last `units` before `end` begin."""
        return _nth_before(self._words if unit is ChunkUnit.WORDS else self._tokens, end, units)

    def word_from(self, position: int) -> int:
        """The start of the first word that begins at `position` or later; the end of the text when there is none."""
        return _nth(self._words, position, 0, self._length)

    def back_tokens(self, end: int, tokens: int) -> int:
        return _nth_before(self._tokens, end, tokens)


def count_words(text: str) -> int:
    return sum(1 for _ in (_ASCII_WORD if text.isascii() else _WORD).finditer(text))


def _nth(counted: array[int], start: int, count: int, length: int) -> int:
    index = bisect_left(counted, start) + count
    return counted[index] if index < len(counted) else length


def _nth_before(counted: array[int], end: int, count: int) -> int:
    index = bisect_left(counted, end) - count
    return end if count <= 0 else counted[index] if index >= 0 else 0
