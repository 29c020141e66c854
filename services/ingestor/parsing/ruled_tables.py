"""Tables drawn with lines: the grid from the rules, the text of each cell from the fragments inside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.domain.blocks import Block, BoundingBox
from services.ingestor.parsing.fragments import Fragment, group_lines
from services.ingestor.parsing.paragraphs import join_lines
from services.ingestor.parsing.pdf_text import Rule
from services.ingestor.parsing.tables import table_block

_THIN = 3.2
_SNAP = 3.0
_MIN_LENGTH = 8.0
_MAX_RULES = 6000
_MAX_CELLS = 20_000


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a straight line: at `at`, from `start` to `end` along it."""

    at: float
    start: float
    end: float


def ruled_tables(fragments: Sequence[Fragment], rules: Sequence[Rule], page: int) -> tuple[list[Block], list[Fragment]]:
    """Tables found, and the fragments outside of them. Only grids count: two rows and two columns, drawn on all sides
    that separate text."""
    if len(rules) < 4 or len(rules) > _MAX_RULES or len(fragments) < 4:
        return [], list(fragments)
    across, down = _segments(rules)
    if len(across) < 2 or len(down) < 2:
        return [], list(fragments)
    rest = list(fragments)
    blocks: list[Block] = []
    for group_across, group_down in _connected(across, down):
        table, used = _table(group_across, group_down, rest, page)
        if table is not None:
            blocks.append(table)
            rest = [f for f in rest if id(f) not in used]
    return blocks, rest


def _segments(rules: Sequence[Rule]) -> tuple[list[Segment], list[Segment]]:
    """Horizontal and vertical lines; thin filled boxes are lines, the sides of boxes too. Pieces on one line join."""
    across: list[Segment] = []
    down: list[Segment] = []
    for r in rules:
        width, height = r.x1 - r.x0, r.y1 - r.y0
        if height <= _THIN and width >= _MIN_LENGTH:
            across.append(Segment((r.y0 + r.y1) / 2, r.x0, r.x1))
        elif width <= _THIN and height >= _MIN_LENGTH / 2:
            down.append(Segment((r.x0 + r.x1) / 2, r.y0, r.y1))
        elif width >= _MIN_LENGTH and height >= _MIN_LENGTH:
            across += [Segment(r.y0, r.x0, r.x1), Segment(r.y1, r.x0, r.x1)]
            down += [Segment(r.x0, r.y0, r.y1), Segment(r.x1, r.y0, r.y1)]
    return _joined(across), _joined(down)


def _joined(segments: list[Segment]) -> list[Segment]:
    joined: list[Segment] = []
    for segment in sorted(segments, key=lambda s: (round(s.at / _SNAP), s.start)):
        last = joined[-1] if joined else None
        if last and abs(last.at - segment.at) <= _SNAP and segment.start <= last.end + _SNAP:
            joined[-1] = Segment(last.at, last.start, max(last.end, segment.end))
        else:
            joined.append(segment)
    return joined


def _connected(across: list[Segment], down: list[Segment]) -> list[tuple[list[Segment], list[Segment]]]:
    """Groups of lines that touch each other."""
    parent = list(range(len(across) + len(down)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for i, h in enumerate(across):
        for j, v in enumerate(down):
            if h.start - _SNAP <= v.at <= h.end + _SNAP and v.start - _SNAP <= h.at <= v.end + _SNAP:
                parent[root(i)] = root(len(across) + j)
    groups: dict[int, tuple[list[Segment], list[Segment]]] = {}
    for i, h in enumerate(across):
        groups.setdefault(root(i), ([], []))[0].append(h)
    for j, v in enumerate(down):
        groups.setdefault(root(len(across) + j), ([], []))[1].append(v)
    found = [group for group in groups.values() if len(group[0]) >= 2 and len(group[1]) >= 2]
    return sorted(found, key=lambda group: min(h.at for h in group[0]))


def _table(
    across: list[Segment], down: list[Segment], fragments: Sequence[Fragment], page: int
) -> tuple[Block | None, set[int]]:
    xs, ys = _positions(down), _positions(across)
    if len(xs) < 3 or len(ys) < 3 or (len(xs) - 1) * (len(ys) - 1) > _MAX_CELLS:
        return None, set()
    inside = [
        f for f in fragments if xs[0] - _SNAP <= (f.x0 + f.x1) / 2 <= xs[-1] + _SNAP and ys[0] <= f.middle <= ys[-1]
    ]
    cells: dict[tuple[int, int], list[Fragment]] = {}
    for f in inside:
        cells.setdefault((_slot(ys, f.middle), _slot(xs, (f.x0 + f.x1) / 2)), []).append(f)
    owner = _merged(xs, ys, across, down)
    if not _is_table(cells, owner, xs, inside):
        return None, set()
    rows = _rows(cells, owner, len(xs) - 1, len(ys) - 1)
    box = BoundingBox(page=page, x0=xs[0], y0=ys[0], x1=xs[-1], y1=ys[-1])
    block = table_block(rows, header_rows=_header_rows(rows), page=page, box=box)
    return block, {id(f) for f in inside}


def _is_table(
    cells: dict[tuple[int, int], list[Fragment]],
    owner: dict[tuple[int, int], int],
    xs: list[float],
    inside: list[Fragment],
) -> bool:
    """Whether the grid is one of a table and not of boxes in a drawing: two rows with two filled cells each, texts that
    stay inside their cells, and no cell that holds most of the page."""
    rows: dict[int, set[int]] = {}
    for (row, column), _ in cells.items():
        rows.setdefault(row, set()).add(owner[(row, column)])
    if sum(len(filled) >= 2 for filled in rows.values()) < 2:
        return False
    right_edge: dict[int, float] = {}
    for (_, column), cell in owner.items():
        right_edge[cell] = max(right_edge.get(cell, 0.0), xs[column + 1])
    fitting = sum(f.x1 <= right_edge[owner[place]] + f.size for place, found in cells.items() for f in found)
    chars = {place: sum(len(f.text) for f in found) for place, found in cells.items()}
    total = sum(chars.values())
    return fitting >= 0.85 * len(inside) and not max(chars.values()) > max(600, 0.6 * total)


def _rows(
    cells: dict[tuple[int, int], list[Fragment]], owner: dict[tuple[int, int], int], columns: int, rows: int
) -> list[list[str]]:
    """Text of every place of the grid; a merged cell shows its text in each place that it covers."""
    pooled: dict[int, list[Fragment]] = {}
    for place, found in cells.items():
        pooled.setdefault(owner[place], []).extend(found)
    texts = {cell: join_lines([line.text for line in group_lines(found)]) for cell, found in pooled.items()}
    return [[texts.get(owner[(row, column)], "") for column in range(columns)] for row in range(rows)]


def _positions(segments: list[Segment]) -> list[float]:
    positions: list[float] = []
    for at in sorted(s.at for s in segments):
        if not positions or at - positions[-1] > _SNAP * 1.5:
            positions.append(at)
    return positions


def _slot(edges: list[float], at: float) -> int:
    for index in range(len(edges) - 2, -1, -1):
        if at >= edges[index]:
            return index
    return 0


def _merged(xs: list[float], ys: list[float], across: list[Segment], down: list[Segment]) -> dict[tuple[int, int], int]:
    """The cell that each place of the grid belongs to: places without a line between them are one cell."""
    rows, columns = len(ys) - 1, len(xs) - 1
    owner = {(r, c): r * columns + c for r in range(rows) for c in range(columns)}

    def join(one: tuple[int, int], other: tuple[int, int]) -> None:
        old, new = owner[other], owner[one]
        if old != new:
            for place, cell in owner.items():
                if cell == old:
                    owner[place] = new

    small = rows * columns <= 2500
    for r in range(rows):
        for c in range(columns):
            middle_y, middle_x = (ys[r] + ys[r + 1]) / 2, (xs[c] + xs[c + 1]) / 2
            if small and c + 1 < columns and not _drawn(down, xs[c + 1], middle_y):
                join((r, c), (r, c + 1))
            if small and r + 1 < rows and not _drawn(across, ys[r + 1], middle_x):
                join((r, c), (r + 1, c))
    return owner


def _drawn(segments: list[Segment], at: float, middle: float) -> bool:
    return any(abs(s.at - at) <= _SNAP * 1.5 and s.start - _SNAP <= middle <= s.end + _SNAP for s in segments)


def _header_rows(rows: list[list[str]]) -> int:
    """One, where the first row is all words and later ones are not."""
    first = [cell for cell in rows[0] if cell]
    if len(rows) < 2 or not first or any(_is_number(cell) for cell in first):
        return 0
    return 1


def _is_number(text: str) -> bool:
    digits = sum(c.isdigit() for c in text)
    return digits > 0 and digits >= 0.5 * len(text.replace(" ", "")) and not (len(text) == 4 and text.isdigit())
