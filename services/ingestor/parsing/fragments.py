"""Pieces of text with their place on a page, and lines made of them. PDF text and OCR both come in this form."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

_CJK = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\u3000-\u30ff]")
_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A run of text without wide gaps. `x0..y1` are in the frame in which it reads from left to right, y downwards;
    `place` is its box on the page as displayed. Points. `confidence` is that of OCR, 1 for text of the file."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    bold: bool = False
    mono: bool = False
    place: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    confidence: float = 1.0

    @property
    def middle(self) -> float:
        return (self.y0 + self.y1) / 2

    @property
    def width(self) -> float:
        return self.x1 - self.x0


@dataclass(frozen=True, kw_only=True)
class Line:
    """Fragments on one baseline, in reading order."""

    fragments: tuple[Fragment, ...]

    @cached_property
    def text(self) -> str:
        parts: list[str] = []
        for index, fragment in enumerate(self.fragments):
            if index and _needs_space(self.fragments[index - 1], fragment):
                parts.append(" ")
            parts.append(fragment.text)
        return " ".join("".join(parts).split())

    @cached_property
    def x0(self) -> float:
        return min(f.x0 for f in self.fragments)

    @cached_property
    def x1(self) -> float:
        return max(f.x1 for f in self.fragments)

    @cached_property
    def y0(self) -> float:
        return min(f.y0 for f in self.fragments)

    @cached_property
    def y1(self) -> float:
        return max(f.y1 for f in self.fragments)

    @cached_property
    def size(self) -> float:
        """The size of most of the characters."""
        return max(self.fragments, key=lambda f: len(f.text)).size

    @cached_property
    def bold(self) -> bool:
        total = sum(len(f.text.strip()) for f in self.fragments)
        return total > 0 and sum(len(f.text.strip()) for f in self.fragments if f.bold) > 0.8 * total

    @cached_property
    def mono(self) -> bool:
        return all(f.mono for f in self.fragments)


def is_cjk(char: str) -> bool:
    return bool(_CJK.match(char))


def is_right_to_left(fragments: Sequence[Fragment]) -> bool:
    letters = sum(1 for f in fragments for c in f.text if c.isalpha())
    return letters > 0 and sum(len(_RTL.findall(f.text)) for f in fragments) * 2 > letters


def line_height(fragments: Sequence[Fragment]) -> float:
    return median(f.y1 - f.y0 for f in fragments) if fragments else 0.0


def group_lines(fragments: Sequence[Fragment], *, right_to_left: bool = False) -> list[Line]:
    """Fragments by baseline, from the top; in a line by x, from the right where the script runs that way."""
    rows: list[list[Fragment]] = []
    for fragment in sorted(fragments, key=lambda f: (f.middle, f.x0)):
        row = _row_for(rows, fragment)
        if row is None:
            rows.append([fragment])
        else:
            row.append(fragment)
    rows.sort(key=lambda row: min(f.y0 for f in row) + max(f.y1 for f in row))
    return [Line(fragments=tuple(sorted(row, key=lambda f: -f.x1 if right_to_left else f.x0))) for row in rows]


def _row_for(rows: list[list[Fragment]], fragment: Fragment) -> list[Fragment] | None:
    """The row that the fragment stands in: they overlap by half of the lower one, and not sideways."""
    for row in reversed(rows[-6:]):
        anchor = max(row, key=lambda f: f.y1 - f.y0)
        overlap = min(anchor.y1, fragment.y1) - max(anchor.y0, fragment.y0)
        smaller = min(anchor.y1 - anchor.y0, fragment.y1 - fragment.y0)
        if overlap > 0.55 * smaller and not any(_over(f, fragment) for f in row):
            return row
    return None


def _over(one: Fragment, other: Fragment) -> bool:
    shared = min(one.x1, other.x1) - max(one.x0, other.x0)
    return shared > 0.5 * min(one.width, other.width) and abs(one.middle - other.middle) > 0.25 * one.size


def _needs_space(left: Fragment, right: Fragment) -> bool:
    if left.text[-1:].isspace() or right.text[:1].isspace():
        return False
    gap = max(right.x0 - left.x1, left.x0 - right.x1)
    size = min(left.size, right.size)
    if left.text and right.text and is_cjk(left.text[-1]) and is_cjk(right.text[0]):
        return gap > 0.8 * size
    return gap > 0.12 * size
