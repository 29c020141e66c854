"""Tables without lines: runs of rows whose cells stand under each other."""

from collections.abc import Iterator, Sequence
from statistics import median

from services.domain.blocks import Block, BoundingBox
from services.ingestor.parsing.fragments import Fragment, Line
from services.ingestor.parsing.tables import table_block

_MIN_ROWS = 3
_MIN_COLUMNS = 3
_MIN_FILL = 0.55


def unruled_runs(lines: Sequence[Line], page: int) -> Iterator[tuple[Sequence[Line], Block | None]]:
    """The lines of a region in order, as runs: with a table where the run is confidently one, with None otherwise."""
    start = 0
    index = 0
    while index < len(lines):
        end = _run_end(lines, index)
        table = _table(lines[index:end], page) if end - index >= _MIN_ROWS else None
        if table is None:
            index = max(index + 1, end)
            continue
        if start < index:
            yield lines[start:index], None
        yield lines[index:end], table
        start = index = end
    if start < len(lines):
        yield lines[start:], None


def _cells(line: Line) -> list[list[Fragment]]:
    """Fragments of a line grouped into cells: a gap of more than a letter separates two."""
    cells: list[list[Fragment]] = []
    for fragment in sorted(line.fragments, key=lambda f: f.x0):
        if cells and fragment.x0 - cells[-1][-1].x1 < 0.9 * fragment.size:
            cells[-1].append(fragment)
        else:
            cells.append([fragment])
    return cells


def _run_end(lines: Sequence[Line], start: int) -> int:
    """The end of the run of rows with several cells that begins at `start`; a row with one cell may stand inside."""
    index = start
    last = start
    gaps = 0
    while index < len(lines):
        if index > start and lines[index].y0 - lines[index - 1].y1 > 3.0 * lines[index].size:
            break
        if len(_cells(lines[index])) >= 2:
            last, gaps = index + 1, 0
        else:
            gaps += 1
            if gaps > 1 or index == start:
                break
        index += 1
    return last


def _table(lines: Sequence[Line], page: int) -> Block | None:
    rows = [_cells(line) for line in lines]
    columns = _columns(rows)
    if len(columns) < _MIN_COLUMNS:
        return None
    grid = [_row(row, columns) for row in rows]
    wide = [row for row in grid if sum(bool(cell) for cell in row) >= 2]
    filled = sum(bool(cell) for row in wide for cell in row)
    if len(wide) < _MIN_ROWS or filled < _MIN_FILL * len(wide) * len(columns):
        return None
    lengths = [len(cell) for row in wide for cell in row if cell]
    if median(lengths) > 24:
        return None
    box = BoundingBox(
        page=page,
        x0=min(f.place[0] for line in lines for f in line.fragments),
        y0=min(f.place[1] for line in lines for f in line.fragments),
        x1=max(f.place[2] for line in lines for f in line.fragments),
        y1=max(f.place[3] for line in lines for f in line.fragments),
    )
    return table_block(grid, header_rows=_header_rows(grid), page=page, box=box)


def _columns(rows: Sequence[list[list[Fragment]]]) -> list[tuple[float, float]]:
    """The strips that cells stand in, found from the rows with most cells: overlapping cells share one."""
    most = max(len(row) for row in rows)
    spans = sorted(
        (cell[0].x0, max(f.x1 for f in cell)) for row in rows if len(row) >= max(2, 0.6 * most) for cell in row
    )
    columns: list[tuple[float, float]] = []
    for x0, x1 in spans:
        if columns and x0 < columns[-1][1] - 0.5:
            columns[-1] = (columns[-1][0], max(columns[-1][1], x1))
        else:
            columns.append((x0, x1))
    return columns


def _row(cells: list[list[Fragment]], columns: Sequence[tuple[float, float]]) -> list[str]:
    out = [""] * len(columns)
    for cell in cells:
        middle = (cell[0].x0 + cell[-1].x1) / 2
        overlaps = [min(cell[-1].x1, x1) - max(cell[0].x0, x0) for x0, x1 in columns]
        at = max(range(len(columns)), key=lambda i: (overlaps[i], -abs((columns[i][0] + columns[i][1]) / 2 - middle)))
        text = Line(fragments=tuple(cell)).text
        out[at] = f"{out[at]} {text}".strip()
    return out


def _header_rows(grid: Sequence[Sequence[str]]) -> int:
    """One, when the first row has no number and most later rows do."""
    numeric = [any(_numeric(cell) for cell in row[1:]) for row in grid]
    return int(not numeric[0] and sum(numeric) > len(grid) / 2)


def _numeric(cell: str) -> bool:
    digits = sum(c.isdigit() for c in cell)
    return digits > 0 and digits * 2 >= len(cell.replace(" ", "")) - 3
