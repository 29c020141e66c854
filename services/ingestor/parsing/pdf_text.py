# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportUnknownParameterType=false
"""The text layer of a PDF page as fragments, one list for each direction in which it is set."""

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pymupdf

from services.ingestor.parsing.fragments import Fragment

_ALL_TEXT = pymupdf.TEXT_PRESERVE_WHITESPACE
_SEEN_TEXT = _ALL_TEXT | pymupdf.TEXT_CLIP
_FLAGS = _SEEN_TEXT | pymupdf.TEXT_COLLECT_VECTORS
_ARABIC_LAM = re.compile("[\u0622\u0623\u0625\u0627]\u0644")
_WIDE_GAP = re.compile(r"\s{3,}")
_PRESENTATION = re.compile(
    "[\ufb00-\ufb06\ufb50-\ufdff\ufe70-\ufefc\u2f00-\u2fdf\uf900-\ufaff\u2002-\u200a\u00a0\u202f]"
)
_ANGLE_STEP = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A line or rectangle drawn on the page, as displayed."""

    x0: float
    y0: float
    x1: float
    y1: float
    stroked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageText:
    """Fragments by direction of writing, the main direction first; and what is drawn."""

    groups: tuple[tuple[Fragment, ...], ...]
    rules: tuple[Rule, ...]

    @property
    def chars(self) -> int:
        return sum(len(f.text) for group in self.groups for f in group)


def page_text(page: Any) -> PageText:
    content = page.get_text("dict", flags=_FLAGS)
    if any(_ARABIC_LAM.search(span["text"]) for line in _lines(content) for span in line["spans"]):
        content = page.get_text("rawdict", flags=_FLAGS)
        for line in _lines(content):
            for span in line["spans"]:
                span["text"] = _arabic(span["chars"])
    content["blocks"].extend(_cut_away(page, content))
    groups: dict[tuple[float, bool], list[Fragment]] = {}
    for line in _lines(content):
        dx, dy = line["dir"]
        angle = round(math.degrees(math.atan2(dy, dx)) / _ANGLE_STEP) * _ANGLE_STEP
        mirrored = _is_mirrored(line, dx, dy)
        pieces = _fragments(line, dx, dy)
        groups.setdefault((angle, mirrored), []).extend(map(_flipped, pieces) if mirrored else pieces)
    ordered = sorted(groups.values(), key=lambda group: -sum(len(f.text) for f in group))
    rules = tuple(
        Rule(x0=b["bbox"][0], y0=b["bbox"][1], x1=b["bbox"][2], y1=b["bbox"][3], stroked=b["stroked"])
        for b in content["blocks"]
        if b["type"] == 3 and b["alpha"] > 0
    )
    return PageText(groups=tuple(tuple(group) for group in ordered if group), rules=rules)


def _cut_away(page: Any, seen: Any) -> list[Any]:
    """Lines on the page that a clipping path hides, where nothing else stands: names in logos, labels of charts.

    What lies outside the page, or under other text (the rest of a picture that was placed cropped), is not read.
    """
    if len(page.get_text("text", flags=_ALL_TEXT)) <= len(page.get_text("text", flags=_SEEN_TEXT)):
        return []
    boxes = [pymupdf.Rect(line["bbox"]) for line in _lines(seen)]
    found: list[Any] = []
    for block in page.get_text("dict", flags=_ALL_TEXT)["blocks"]:
        boxed = [(line, pymupdf.Rect(line["bbox"])) for line in block.get("lines", ())]
        lines = [line for line, box in boxed if box in page.rect and not any(box.intersects(other) for other in boxes)]
        if lines:
            found.append({**block, "lines": lines})
    return found


def _lines(content: Any) -> Iterator[Any]:
    for block in content["blocks"]:
        yield from block.get("lines", ())


def _fragments(line: Any, dx: float, dy: float) -> Iterator[Fragment]:
    spans = [span for span in line["spans"] if span["text"]]
    if not spans:
        return
    text = "".join(span["text"] for span in spans)
    if not text.strip():
        return
    main = max(spans, key=lambda span: len(span["text"].strip()))
    x0, y0, x1, y1 = _frame(line, dx, dy, main)
    weight = sum(len(s["text"].strip()) for s in spans)
    bold = sum(len(s["text"].strip()) for s in spans if _is_bold(s))
    mono = all(s["flags"] & 8 for s in spans if s["text"].strip())
    for start, end in _pieces(text):
        share = (x1 - x0) / len(text)
        yield Fragment(
            text=_normal(text[start:end]) + (" " if text[end : end + 1].isspace() else ""),
            x0=x0 + start * share,
            x1=x0 + end * share,
            y0=y0,
            y1=y1,
            size=main["size"],
            bold=bold * 2 > weight,
            mono=mono,
            place=line["bbox"],
        )


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Stretches between runs of blanks that stand for a tab."""
    start = len(text) - len(text.lstrip())
    end_of_text = len(text.rstrip())
    for gap in _WIDE_GAP.finditer(text, start, end_of_text):
        yield start, gap.start()
        start = gap.end()
    yield start, end_of_text


def _frame(line: Any, dx: float, dy: float, span: Any) -> tuple[float, float, float, float]:
    """The box of a line in the frame in which it runs to the right."""
    x0, y0, x1, y1 = line["bbox"]
    if abs(dy) < 0.01 and dx > 0:
        return x0, y0, x1, y1
    if abs(dx) < 0.01 or abs(dy) < 0.01:
        xs = [x * dx + y * dy for x in (x0, x1) for y in (y0, y1)]
        ys = [-x * dy + y * dx for x in (x0, x1) for y in (y0, y1)]
        return min(xs), min(ys), max(xs), max(ys)
    ox, oy = span["origin"]
    size = span["size"]
    start, base = ox * dx + oy * dy, -ox * dy + oy * dx
    along = ((x1 - x0) - size * abs(dy)) / abs(dx) if abs(dx) >= abs(dy) else ((y1 - y0) - size * abs(dx)) / abs(dy)
    return start, base - 0.8 * size, start + max(size, along), base + 0.2 * size


def _is_mirrored(line: Any, dx: float, dy: float) -> bool:
    """Whether glyphs stand on their heads in the frame of their line: their baseline is near the upper edge."""
    span = next((s for s in line["spans"] if s["text"].strip()), None)
    if span is None or min(abs(dx), abs(dy)) > 0.01:
        return False
    x, y = span["origin"]
    x0, y0, x1, y1 = span["bbox"]
    base = -x * dy + y * dx
    edges = sorted((-x0 * dy + y0 * dx, -x1 * dy + y1 * dx))
    return edges[1] > edges[0] and (base - edges[0]) / (edges[1] - edges[0]) < 0.4


def _flipped(f: Fragment) -> Fragment:
    return replace(f, y0=-f.y1, y1=-f.y0)


def _is_bold(span: Any) -> bool:
    return bool(span["flags"] & 16) or bool(re.search(r"bold|black|heavy|semibold", span["font"], re.I))


def _normal(text: str) -> str:
    """Ligatures and presentation forms as the letters they stand for; everything else as it is."""
    return _PRESENTATION.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)


def _arabic(chars: list[Any]) -> str:
    """Text of a span, with the two letters of a lam-alef ligature in the order of speech: drawn as one glyph, they come
    as an alef without width before its lam."""
    text = [char["c"] for char in chars]
    for index in range(len(chars) - 1):
        box = chars[index]["bbox"]
        if text[index + 1] == "\u0644" and text[index] in "\u0622\u0623\u0625\u0627" and box[2] - box[0] < 0.05:
            text[index], text[index + 1] = text[index + 1], text[index]
    return "".join(text)
