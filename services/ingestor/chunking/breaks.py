"""Where a text may be cut, best places first: blank line, line, sentence end."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

_BLANK_LINE: Final = re.compile(r"\n[^\S\n]*\n\s*")
_LINE: Final = re.compile(r"\n+")
# A full stop ends a sentence when the next word does not begin with a small letter; a CJK one always does.
_SENTENCE: Final = re.compile(r"[.!?…؟۔।॥]+[\"'”’»)\]]*\s+(?=[^\sa-zа-яß-öø-ÿ])|[。！？；｡]+[\"'”’」』）】》]*\s*")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(\[\"'«“])(?:[A-ZА-ЯÀ-Þ]|e\.g|i\.e|cf|vs|etc|al|approx|resp|no|nos|vol|pp?|ch|sec|fig|figs|eq|eqs|ref|refs"
    r"|dr|mr|mrs|ms|prof|st|jr|sr|inc|ltd|co|corp|dept|gen|col|capt|rev|u\.s|a\.m|p\.m|z\.\s?b|d\.\s?h|u\.\s?a|bzw|vgl|ca"
    r"|nr|bd|abs|art|hrsg|usw|bspw|ggf|sog|p\.\s?ex|c\.-à-d|env|av|sra?|ud|núm|pág|т\.\s?е|т\.\s?д|т\.\s?п|г|гг|ул|стр|им)$",
    re.IGNORECASE,
)
_ABBREVIATION_CHARS: Final = 12


@dataclass(slots=True)
class Breaks:
    """Positions where a new chunk may begin, ascending, by rank: 0 the best. `atoms` hold no break inside."""

    ranks: tuple[list[int], list[int], list[int]] = field(default_factory=lambda: ([], [], []))
    atoms: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def last(self, rank: int, after: int, until: int) -> int | None:
        """The last position of `rank` in (`after`, `until`]."""
        positions = self.ranks[rank]
        index = bisect_right(positions, until) - 1
        return positions[index] if index >= 0 and positions[index] > after else None

    def first(self, rank: int, start: int, before: int) -> int | None:
        """The first position of `rank` in [`start`, `before`)."""
        positions = self.ranks[rank]
        index = bisect_left(positions, start)
        return positions[index] if index < len(positions) and positions[index] < before else None

    def outside_atoms(self, position: int) -> int:
        """`position`, or the end of the atom that it lies inside."""
        index = bisect_right(self.atoms, (position, 1 << 62)) - 1
        if index >= 0:
            start, end = self.atoms[index]
            if start < position < end:
                return end
        return position

    def atom_start(self, position: int) -> int:
        """`position`, or the start of the atom that it lies inside."""
        index = bisect_right(self.atoms, (position, 1 << 62)) - 1
        if index >= 0:
            start, end = self.atoms[index]
            if start < position < end:
                return start
        return position

    def add_prose(self, text: str, at: int) -> None:
        """The breaks inside a block of prose that lies at `at`."""
        if "\n" in text:
            self.ranks[0].extend(at + match.end() for match in _BLANK_LINE.finditer(text))
            self.ranks[1].extend(at + match.end() for match in _LINE.finditer(text))
        self.add_sentences(text, at)

    def add_sentences(self, text: str, at: int) -> None:
        self.ranks[2].extend(at + match.end() for match in _SENTENCE.finditer(text) if _ends_sentence(text, match))

    def add_lines(self, text: str, at: int, units: list[int]) -> None:
        """The breaks inside code at `at`: `units` are offsets of functions and the like; then blank lines, lines."""
        self.ranks[0].extend(at + unit for unit in units)
        self.ranks[1].extend(at + match.end() for match in re.finditer(r"\n[^\S\n]*\n(?:[^\S\n]*\n)*", text))
        self.ranks[2].extend(at + match.end() for match in re.finditer(r"\n", text))


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    if match[0][0] != ".":
        return True
    before = text[max(0, match.start() - _ABBREVIATION_CHARS) : match.start()]
    return _ABBREVIATION.search(before) is None
