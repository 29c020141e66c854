"""Cuts a stretch of text into pieces that fit, at the best place each time, with overlap. One pass, no backtracking."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from services.domain.chunks import Chunking
from services.ingestor.chunking.breaks import Breaks
from services.ingestor.chunking.measure import Room, Ruler

#: How full a piece must be to end at a break of this rank: a blank line is worth a shorter piece.
_FILL: Final = ((0, 0.25), (1, 0.5), (2, 0.5))
_SPACE_CHARS: Final = 200
_MAX_MARKS: Final = 8
# At least three quarters of a piece are new, whatever the settings ask for.
_OVERLAP_SHARE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A chunk to be: the range `start` to `end` of the text, `lead` (a repeated table header) before it."""

    start: int
    end: int
    token_count: int
    lead: str = ""


#: (start, end, lead) -> tokens of the whole model input.
CountInput = Callable[[int, int, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutter:
    """Cuts ranges of `text`.

    `count_input` counts the real model input, which may be `max_tokens` long; `room` is the estimate that the cutter
    works with. `by_unit`: end a piece at the first function that brings it to the minimum, rather than fill it.
    """

    text: str
    ruler: Ruler
    breaks: Breaks
    chunking: Chunking
    room: Room
    count_input: CountInput
    max_tokens: int
    by_unit: bool = False

    def pieces(self, start: int, end: int) -> Iterator[Piece]:
        """Pieces that cover every visible character of `start` to `end`, in order."""
        fresh = self._skip_space(start, end)
        begin = self._line_start(start, fresh)
        while fresh < end:
            piece = self._piece(begin, fresh, end)
            yield piece
            fresh = self._skip_space(piece.end, end)
            begin = min(self._overlap(piece, fresh), self._line_start(piece.end, fresh)) if fresh < end else fresh

    def _piece(self, begin: int, fresh: int, limit: int) -> Piece:
        room = self.room
        while True:
            if begin < fresh and not self._progresses(room, begin, fresh, limit):
                begin = fresh
            end = self._end(room, begin, fresh, limit)
            end -= len(self.text[begin:end]) - len(self.text[begin:end].rstrip())
            tokens = self.count_input(begin, end, "")
            if tokens <= self.max_tokens or end - begin <= 1:
                return Piece(start=begin, end=end, token_count=tokens)
            begin = fresh
            allowed = min(room.tokens, self.ruler.tokens(begin, end)) - (tokens - self.max_tokens) - 1
            if allowed < 1:
                # The text makes more tokens alone than in its place.
                limit, allowed = begin + max(1, (end - begin) // 2), room.tokens
            room = replace(room, tokens=allowed)

    def _progresses(self, room: Room, begin: int, fresh: int, limit: int) -> bool:
        """Whether a piece that starts with the overlap has room for new text that need not be torn."""
        reach = min(self.ruler.reach(room, begin), limit)
        return reach > fresh and (reach == limit or self.breaks.atom_start(reach) > fresh)

    def _end(self, room: Room, begin: int, fresh: int, limit: int) -> int:
        reach = min(self.ruler.reach(room, begin), limit)
        if self.by_unit and (end := self._unit_end(begin, fresh, reach, limit)):
            return end
        if reach >= limit:
            return limit
        end = self._best(begin, fresh, reach)
        minimum = self.chunking.min_size
        if self.ruler.units(room.unit, end, limit) < minimum:
            # Rather two even pieces than a full one and a scrap.
            reach = min(end, self.ruler.back(room.unit, limit, minimum))
            if reach - max(fresh, begin) > (end - begin) // 2:
                return self._best(begin, fresh, reach)
        return end

    def _unit_end(self, begin: int, fresh: int, reach: int, limit: int) -> int | None:
        enough = self.ruler.reach(replace(self.room, units=max(1, self.chunking.min_size)), begin)
        end = self.breaks.first(0, max(enough, fresh + 1), reach + 1)
        if end is None or end >= limit:
            return None
        rest = self.ruler.units(self.room.unit, end, limit)
        return None if reach >= limit and rest < self.chunking.min_size else end

    def _best(self, begin: int, fresh: int, reach: int) -> int:
        for rank, fill in _FILL:
            end = self.breaks.last(rank, max(fresh, begin + int((reach - begin) * fill)), reach)
            if end is not None:
                return end
        ends = [end for rank, _ in _FILL if (end := self.breaks.last(rank, fresh, reach)) is not None]
        return max(ends) if ends else self._anywhere(fresh, reach)

    def _anywhere(self, fresh: int, reach: int) -> int:
        for position in range(reach, max(fresh, reach - _SPACE_CHARS), -1):
            if self.text[position - 1].isspace():
                return position
        end = reach
        while end - 1 > max(fresh, reach - _MAX_MARKS) and unicodedata.combining(self.text[end]):
            end -= 1
        return end

    def _overlap(self, piece: Piece, fresh: int) -> int:
        """Where the piece that brings the text from `fresh` on begins."""
        chunking = self.chunking
        if not chunking.overlap or (self.by_unit and self.breaks.first(0, fresh, fresh + 1) is not None):
            return fresh
        start = max(
            self.ruler.back(chunking.unit, fresh, min(chunking.overlap, self.room.units // 2)),
            self.ruler.back_tokens(fresh, self.room.tokens // _OVERLAP_SHARE),
        )
        start = self.breaks.outside_atoms(self.ruler.word_from(start))
        if start <= piece.start or start >= fresh:
            return fresh
        firsts = [first for rank, _ in _FILL if (first := self.breaks.first(rank, start, fresh)) is not None]
        return self.breaks.outside_atoms(min(firsts)) if firsts else start

    def _skip_space(self, start: int, end: int) -> int:
        while start < end and self.text[start].isspace():
            start += 1
        return start

    def _line_start(self, start: int, fresh: int) -> int:
        """In a program, where the line of `fresh` begins (not before `start`), so that it keeps its indentation."""
        return max(start, self.text.rfind("\n", start, fresh) + 1) if self.by_unit else fresh
