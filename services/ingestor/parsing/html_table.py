# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""An HTML table as rows of cells: spans filled in, the header found."""

import re
from collections.abc import Callable, Iterator
from typing import Any

_MAX_SPAN = 200
_MAX_CELLS = 500_000


def is_layout_table(table: Any) -> bool:
    """A table that arranges a page instead of showing data: it holds another table, or has a single cell or column of
    blocks, or says so."""
    if table.get("role") in ("presentation", "none"):
        return True
    if next(table.iterdescendants("table"), None) is not None:
        return True
    rows = list(_rows(table))
    if max((len(cells) for cells, _ in rows), default=0) <= 1:
        return True
    has_headers = next(table.iterdescendants("th", "thead", "caption"), None) is not None
    return (
        not has_headers and next(table.iterdescendants("h1", "h2", "h3", "ul", "ol", "form", "pre"), None) is not None
    )


def table_rows(table: Any, text_of: Callable[[Any], str]) -> tuple[list[list[str]], int]:
    """Rows (a spanned cell repeats in every place it covers) and how many of them are the header."""
    grid: list[list[str]] = []
    hanging: dict[int, tuple[int, str]] = {}  # column -> rows still to fill, text
    headers, in_header, total = 0, True, 0
    for cells, head in _rows(table):
        row: list[str] = []
        below: dict[int, tuple[int, str]] = {}
        for cell in cells:
            _hang(row, hanging, below)
            text, down = text_of(cell), _span(cell.get("rowspan"))
            for _ in range(_span(cell.get("colspan"))):
                if down > 1:
                    below[len(row)] = (down - 1, text)
                row.append(text)
        _hang(row, hanging, below)
        hanging = below
        total += len(row)
        if total > _MAX_CELLS:
            break
        in_header = in_header and (head or (bool(cells) and all(cell.tag == "th" for cell in cells)))
        headers += in_header
        grid.append(row)
    return grid, headers


def _hang(row: list[str], hanging: dict[int, tuple[int, str]], below: dict[int, tuple[int, str]]) -> None:
    """Put the cells that reach down from rows above to the end of `row`, as long as one belongs there."""
    while len(row) in hanging:
        left, text = hanging[len(row)]
        if left > 1:
            below[len(row)] = (left - 1, text)
        row.append(text)


def _rows(table: Any) -> Iterator[tuple[list[Any], bool]]:
    for child in table:
        if child.tag == "tr":
            yield [cell for cell in child if cell.tag in ("td", "th")], False
        elif child.tag in ("thead", "tbody", "tfoot"):
            for row in child:
                if row.tag == "tr":
                    yield [cell for cell in row if cell.tag in ("td", "th")], child.tag == "thead"


def _span(value: str | None) -> int:
    return min(_MAX_SPAN, max(1, int(value))) if value and re.fullmatch(r"\s*\d{1,6}\s*", value) else 1
