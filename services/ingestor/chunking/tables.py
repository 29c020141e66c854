"""Cuts a table that is too big for one chunk: by rows, the header repeated; a row that is too big by its cells."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from services.domain.blocks import Block
from services.ingestor.chunking.cutter import Cutter, Piece
from services.ingestor.chunking.measure import Room

_CELL_END = re.compile(r" \| ")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCutter:
    """Cuts one table block. `cutter` serves rows that do not fit alone; its breaks are those of cells."""

    cutter: Cutter
    block: Block
    at: int

    def pieces(self, lead_start: int) -> Iterator[Piece]:
        """Pieces of the table; the first one begins at `lead_start`, with the heading or caption that stands there."""
        text = self.block.text
        rows = [self.at, *(self.at + match.end() for match in re.finditer(r"\n", text))]
        end = self.at + len(text)
        header = self._header(rows, end)
        row = 0
        begin = lead_start
        while row < len(rows):
            lead = header if row >= self.block.header_rows else ""
            found = self._fitting(rows, row, self._last_row(rows, row, begin, end, lead), begin, end, lead)
            if found is None:
                # Header rows go with the row below them: alone they would say nothing.
                row = max(row, self.block.header_rows if header else 0) + 1
                yield from self.cutter.pieces(begin, rows[row] if row < len(rows) else end)
            else:
                piece, row = found
                if self.cutter.text[piece.start : piece.end].strip():
                    yield piece
            begin = rows[row] if row < len(rows) else end

    def _header(self, rows: list[int], end: int) -> str:
        """The header rows with a line end, "" when there are none or they would take half the room."""
        count = self.block.header_rows
        if not 0 < count < len(rows):
            return ""
        start, stop = rows[0], rows[count]
        room = self.cutter.room
        half = Room(unit=room.unit, units=max(1, room.units // 2), tokens=max(1, room.tokens // 2))
        return self.cutter.text[start:stop] if stop < end and self.cutter.ruler.fits(half, start, stop) else ""

    def _last_row(self, rows: list[int], first_row: int, begin: int, end: int, lead: str) -> int:
        """The first row that, by estimate, no longer fits in a piece that begins at `begin`."""
        room = self.cutter.room
        if lead:
            start, stop = rows[0], rows[self.block.header_rows]
            ruler = self.cutter.ruler
            units = room.units - ruler.units(room.unit, start, stop)
            room = replace(room, units=units, tokens=room.tokens - ruler.tokens(start, stop) - 1)
        reach = self.cutter.ruler.reach(room, begin)
        if reach >= end:
            return len(rows)
        last = bisect_right(rows, reach, lo=first_row) - 1
        return last if last > self.block.header_rows or not first_row < self.block.header_rows else first_row

    def _fitting(
        self, rows: list[int], first_row: int, stop: int, begin: int, end: int, lead: str
    ) -> tuple[Piece, int] | None:
        """The piece from `begin` up to row `stop`, or as many rows fewer as it takes, and the row that follows it."""
        while stop > first_row:
            stop_at = rows[stop] - 1 if stop < len(rows) else end
            tokens = self.cutter.count_input(begin, stop_at, lead)
            if tokens <= self.cutter.max_tokens:
                return Piece(start=begin, end=stop_at, token_count=tokens, lead=lead), stop
            stop -= max(1, (stop - first_row) // 8)
        return None


def cell_ends(text: str, at: int) -> list[int]:
    """Where the cells after the first begin, in the text of a table that lies at `at`."""
    return [at + match.end() for match in _CELL_END.finditer(text)]
