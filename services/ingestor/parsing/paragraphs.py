"""Lines of a column to blocks: headings by size and weight, paragraphs by spacing and indent, lists by bullets."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from services.domain.blocks import Block, BlockKind, BoundingBox
from services.ingestor.parsing.cleaning import clean
from services.ingestor.parsing.fragments import Line, is_cjk

_BULLET = re.compile(r"(?:[•‣◦▪■□●○◆–—➢✓❑*·∙-]|\(?(?:\d{1,2}|[a-zA-Z]|[ivx]{1,4})[.)])\s+\S")
_HYPHENS = "-\u2010\u00ad"
_SENTENCE_END = re.compile(r"[.!?。！？:;]['\"”’)\]]*$")
_MAX_HEADING_CHARS = 200
_MAX_HEADING_LINES = 3
_MAX_LEVELS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FontProfile:
    """The size of running text in a document, and the sizes of its headings from the largest."""

    body_size: float
    heading_sizes: tuple[float, ...] = ()

    @classmethod
    def of(cls, lines: Sequence[tuple[float, int]]) -> "FontProfile":
        """From (size, characters) of lines: the commonest size is the body's, larger and rarer ones are headings."""
        weights: dict[float, int] = {}
        for size, chars in lines:
            key = round(size * 2) / 2
            weights[key] = weights.get(key, 0) + chars
        if not weights:
            return cls(body_size=0.0)
        body = max(weights, key=lambda size: weights[size])
        larger = sorted((s for s in weights if s >= 1.12 * body and weights[s] < 0.3 * weights[body]), reverse=True)
        return cls(body_size=body, heading_sizes=tuple(larger[:_MAX_LEVELS]))

    def level(self, line: Line) -> int:
        """The heading level that the size of a line speaks for; 0 for none."""
        if not self.body_size or line.size < 1.12 * self.body_size:
            return 0
        return 1 + sum(1 for size in self.heading_sizes if size > line.size + 0.3)

    @property
    def bold_level(self) -> int:
        return min(_MAX_LEVELS, len(self.heading_sizes) + 1)


def column_blocks(
    lines: Sequence[Line], profile: FontProfile, page: int, box_of: Callable[[Sequence[Line]], BoundingBox]
) -> list[Block]:
    """Blocks of the lines of one region, in order."""
    blocks: list[Block] = []
    for group in _paragraphs(lines, profile):
        text = join_lines([line.text for line in group])
        if not text.strip():
            continue
        level = _heading_level(group, text, profile)
        box = box_of(group)
        if level:
            blocks.append(Block(kind=BlockKind.HEADING, text=text, level=level, page=page, box=box))
        elif _BULLET.match(text):
            blocks.append(Block(kind=BlockKind.LIST, text=text, page=page, box=box))
        elif all(line.mono for line in group) and len(group) > 1:
            shown = "\n".join(_indented(line, group) for line in group)
            blocks.append(Block(kind=BlockKind.CODE, text=clean(shown), page=page, box=box))
        else:
            blocks.append(Block(kind=BlockKind.PARAGRAPH, text=text, page=page, box=box))
    return blocks


def join_lines(lines: Sequence[str]) -> str:
    """Lines of one paragraph as running text: words broken at line ends made whole, no blanks between CJK lines."""
    text = ""
    for piece in lines:
        line = piece.strip()
        if not line:
            continue
        if not text:
            text = line
        elif text[-1] in _HYPHENS and len(text) > 1 and text[-2].isalpha() and line[0].isalpha():
            text = text[:-1] + line if _is_broken_word(text, line) else text + line
        elif (text[-1] in _HYPHENS and len(text) > 1 and text[-2].isalnum() and line[0].isdigit()) or (
            is_cjk(text[-1]) and is_cjk(line[0]) and not ("\uac00" <= text[-1] <= "\ud7af")
        ):
            text += line
        else:
            text += " " + line
    return clean(text)


def _is_broken_word(text: str, line: str) -> bool:
    """A hyphen of layout stands between small letters; one of spelling in a word with others, or before a capital."""
    word = re.split(r"\s", text[:-1])[-1]
    return text[-2].islower() and line[0].islower() and not any(h in word for h in "-\u2010/")


def _paragraphs(lines: Sequence[Line], profile: FontProfile) -> list[list[Line]]:
    groups: list[list[Line]] = []
    left = min((line.x0 for line in lines), default=0.0)
    right = max((line.x1 for line in lines), default=0.0)
    spacing = _spacing(lines)
    for line in lines:
        if groups and not _begins(line, groups[-1], profile, left, right, spacing):
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _begins(line: Line, group: list[Line], profile: FontProfile, left: float, right: float, spacing: float) -> bool:  # noqa: PLR0911  one line a sign
    """Whether `line` begins a paragraph of its own after those of `group`."""
    before = group[-1]
    size = max(line.size, 1.0)
    if abs(line.size - before.size) > 0.12 * size and profile.level(line) != profile.level(before):
        return True
    if line.bold != before.bold and (len(group) == 1 or line.bold) and not _continues(before, line):
        return True
    step = line.y0 - before.y0
    if profile.level(line) and profile.level(line) == profile.level(before) and len(group) < _MAX_HEADING_LINES:
        return not 0 < step < 1.7 * size
    if step > max(1.35 * spacing, spacing + 0.45 * size) or step < -0.5 * size:
        return True
    if _BULLET.match(line.text):
        return True
    indented = line.x0 - min(other.x0 for other in group[-3:])
    ends_short = before.x1 < right - 0.18 * (right - left)
    if ends_short and _SENTENCE_END.search(before.text):
        return True
    starts_list = bool(_BULLET.match(group[0].text))
    return not starts_list and 0.8 * size < indented < 5 * size and before.x0 - left < 0.5 * size and len(group) > 1


def _continues(before: Line, line: Line) -> bool:
    """A sentence that merely changes its weight goes on: no end before, a small letter after."""
    return not _SENTENCE_END.search(before.text) and line.text[:1].islower()


def _spacing(lines: Sequence[Line]) -> float:
    """The usual distance of two lines; that of single lines when there is only one."""
    steps = sorted(b.y0 - a.y0 for a, b in pairwise(lines) if 0 < b.y0 - a.y0 < 3.5 * a.size)
    if steps:
        return steps[len(steps) // 3]
    return 1.2 * lines[0].size if lines else 0.0


def _heading_level(group: Sequence[Line], text: str, profile: FontProfile) -> int:
    if len(group) > _MAX_HEADING_LINES or len(text) > _MAX_HEADING_CHARS or not any(c.isalpha() for c in text):
        return 0
    level = min(profile.level(line) for line in group)
    if level:
        return min(level, _MAX_LEVELS)
    bold = (
        all(line.bold for line in group)
        and profile.body_size
        and min(line.size for line in group) >= 0.95 * profile.body_size
    )
    if bold and len(text) <= 120 and len(group) <= 2 and not text.rstrip().endswith((".", ",", ";")):
        return profile.bold_level
    return 0


def _indented(line: Line, group: Sequence[Line]) -> str:
    left = min(other.x0 for other in group)
    return " " * round((line.x0 - left) / max(1.0, 0.6 * line.size)) + line.text
