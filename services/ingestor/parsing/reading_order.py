"""Human reading order: columns one after the other, headings over them in between (an XY-cut that looks for gutters
and lets full-width lines cut the page into bands)."""

from collections.abc import Iterator, Sequence

from services.ingestor.parsing.fragments import Fragment, Line, group_lines, is_right_to_left

_BIN_POINTS = 2.0
_MAX_DEPTH = 6
_WIDE_SHARE = 0.62
_MIN_LINES = 4
_MIN_COLUMN_CHARS = 11.0
_MIN_FILL = 0.42
_CROSSED_SHARE = 0.15  # of the usual height of text above a strip: centred lines of a title may cross a gutter


def regions(fragments: Sequence[Fragment]) -> list[list[Line]]:
    """Lines of each region of the page (a column, or a stretch between columns), in reading order."""
    right_to_left = is_right_to_left(fragments)
    found = _regions([f for f in fragments if f.text.strip()], right_to_left, 0)
    return [group_lines(region, right_to_left=right_to_left) for region in found]


def _regions(fragments: list[Fragment], right_to_left: bool, depth: int) -> Iterator[list[Fragment]]:
    gutter = _gutter(fragments) if depth < _MAX_DEPTH and len(fragments) >= 2 * _MIN_LINES else None
    if gutter is None:
        if fragments:
            yield fragments
        return
    sides = [f for f in fragments if f.x1 <= gutter or f.x0 >= gutter]
    crossing = sorted((f for f in fragments if f.x0 < gutter < f.x1), key=lambda f: f.middle)
    crossing = _with_row_mates(crossing, sides)
    taken = set(map(id, crossing))
    sides = [f for f in sides if id(f) not in taken]
    for band in _bands(crossing, sides):
        left = [f for f in band if f.x1 <= gutter]
        right = [f for f in band if f.x0 >= gutter]
        across = [f for f in band if f.x0 < gutter < f.x1 or id(f) in taken]
        if across:
            yield from _regions(across, right_to_left, depth + 2)
            continue
        for side in (right, left) if right_to_left else (left, right):
            yield from _regions(side, right_to_left, depth + 1)


def _with_row_mates(crossing: list[Fragment], sides: list[Fragment]) -> list[Fragment]:
    """Crossing fragments together with what stands on their line: a title broken into pieces stays one line."""
    mates = [
        f for f in sides
        if any(min(f.y1, c.y1) - max(f.y0, c.y0) > 0.7 * min(f.y1 - f.y0, c.y1 - c.y0) for c in crossing)
    ]  # fmt: skip
    return sorted([*crossing, *mates], key=lambda f: f.middle)


def _bands(crossing: list[Fragment], sides: list[Fragment]) -> Iterator[list[Fragment]]:
    """From the top: what stands beside the gutter, then the lines that cross it, and so on."""
    rest = sorted(sides, key=lambda f: f.middle)
    at = 0
    run: list[Fragment] = []
    for line in crossing:
        before: list[Fragment] = []
        while at < len(rest) and rest[at].middle < line.middle:
            before.append(rest[at])
            at += 1
        if before:
            if run:
                yield run
                run = []
            yield before
        run.append(line)
    if run:
        yield run
    if at < len(rest):
        yield rest[at:]


def _gutter(fragments: list[Fragment]) -> float | None:
    """The x of the widest white strip with columns of running text on both sides; None when there is none."""
    left_edge, right_edge = min(f.x0 for f in fragments), max(f.x1 for f in fragments)
    width = right_edge - left_edge
    narrow = [f for f in fragments if f.width < _WIDE_SHARE * width]
    if width <= 0 or len(narrow) < 2 * _MIN_LINES:
        return None
    size = sorted(f.size for f in fragments)[len(fragments) // 2]
    bins = _coverage(narrow, left_edge, width)
    allowed = _CROSSED_SHARE * sorted(bins)[len(bins) // 2]
    best: tuple[float, float] | None = None
    start: int | None = None
    for index, covered in enumerate([*bins, float("inf")]):
        if covered <= allowed:
            start = index if start is None else start
        elif start is not None:
            strip = (index - start) * _BIN_POINTS
            middle = left_edge + (start + index) / 2 * _BIN_POINTS
            if start > 0 and index < len(bins) and strip >= max(4.0, 0.7 * size) and (best is None or strip > best[0]):  # noqa: SIM102
                if _are_columns(fragments, middle, left_edge, right_edge):
                    best = (strip, middle)
            start = None
    return best[1] if best else None


def _coverage(fragments: list[Fragment], left_edge: float, width: float) -> list[float]:
    """Height of text over each strip of two points."""
    bins = [0.0] * (int(width / _BIN_POINTS) + 1)
    for f in fragments:
        first, last = int((f.x0 - left_edge) / _BIN_POINTS), int((f.x1 - left_edge - 0.01) / _BIN_POINTS)
        for index in range(max(0, first), min(last + 1, len(bins))):
            bins[index] += f.y1 - f.y0
    return bins


def _are_columns(fragments: list[Fragment], gutter: float, left_edge: float, right_edge: float) -> bool:
    """Whether running text stands on both sides: lines that fill their column, and not the cells of a table."""
    left = group_lines([f for f in fragments if f.x1 <= gutter])
    right = group_lines([f for f in fragments if f.x0 >= gutter])
    if min(len(left), len(right)) < _MIN_LINES:
        return False
    top, bottom = max(left[0].y0, right[0].y0), min(left[-1].y1, right[-1].y1)
    shorter = min(left[-1].y1 - left[0].y0, right[-1].y1 - right[0].y0)
    if bottom - top < 0.25 * shorter:
        return False
    return _is_running_text(left) and _is_running_text(right)


def _is_running_text(lines: list[Line]) -> bool:
    """Lines of some length that mostly reach across their column (the ends of paragraphs are short, so not all do)."""
    extent = max(line.x1 for line in lines) - min(line.x0 for line in lines)
    chars = sorted(_weight(line.text) for line in lines)
    filled = sum(sum(f.width for f in line.fragments) for line in lines) / (len(lines) * extent) if extent else 0.0
    digits = sum(c.isdigit() for line in lines for c in line.text)
    total = sum(len(line.text) for line in lines)
    return chars[len(chars) // 2] >= _MIN_COLUMN_CHARS and filled >= _MIN_FILL and digits < 0.4 * total


def _weight(text: str) -> float:
    return sum(2.0 if char > "\u2e7f" else 1.0 for char in text)
