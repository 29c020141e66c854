"""Workbooks (XLSX, XLS): each sheet a heading with its name and a table of the values as they are shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from services.common.errors import DocumentError, Reason
from services.domain.blocks import Block, BlockKind, DocumentMetadata, ParseWarning
from services.ingestor.parsing.parser import ParseOptions, Reading
from services.ingestor.parsing.tables import table_block

MAX_CELLS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """`rows` from the first used row and column on (`origin`, from 0); `merged` are (top, left, bottom, right), from 0
    and inclusive, in the coordinates of the sheet."""

    name: str
    rows: Sequence[Sequence[str]]
    origin: tuple[int, int] = (0, 0)
    hidden: bool = False
    merged: Sequence[tuple[int, int, int, int]] = ()
    shown: Mapping[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])


def read_xlsx(path: Path, options: ParseOptions) -> Reading:
    """Raises UNREADABLE_DOCUMENT, DOCUMENT_LIMIT."""
    from services.ingestor.parsing.calamine_sheets import calamine_sheets
    from services.ingestor.parsing.xlsx_cells import XlsxCells

    cells = XlsxCells.scan(path, options)
    return _reading(calamine_sheets(path, cells.shown), cells.metadata)


def read_xls(path: Path, options: ParseOptions) -> Reading:
    """Raises UNREADABLE_DOCUMENT, DOCUMENT_LIMIT."""
    from services.ingestor.parsing.xls_cells import xlrd_sheets, xls_metadata

    del options
    return _reading(xlrd_sheets(path), xls_metadata(path))


def too_many_cells(sheet: str, rows: int, columns: int) -> DocumentError:
    return DocumentError(
        f"sheet {sheet[:60]!r} spans {rows} x {columns} cells; the limit is {MAX_CELLS}", reason=Reason.DOCUMENT_LIMIT
    )


def _reading(sheets: Sequence[Sheet], metadata: DocumentMetadata) -> Reading:
    blocks: list[Block] = []
    warnings: list[ParseWarning] = []
    for sheet in sheets:
        grid = _filled(sheet)
        table = table_block(grid, header_rows=header_rows(grid))
        if table is None:
            continue
        if sheet.hidden:
            warnings.append(ParseWarning(code="HIDDEN_SHEET", message=f"sheet {sheet.name[:60]!r} is hidden"))
        blocks.append(Block(kind=BlockKind.HEADING, text=sheet.name.strip() or "Sheet", level=1))
        blocks.append(table)
    return Reading(blocks=tuple(blocks), metadata=metadata, warnings=tuple(warnings))


def header_rows(grid: Sequence[Sequence[str]]) -> int:
    """One, where the first used row is all text and as wide as what follows; 0 where titles or gaps come first."""
    used = [row for row in grid if any(row)]
    if len(used) < 2:
        return 0
    width = max(sum(bool(cell) for cell in row) for row in used[:20])
    first = [cell for cell in used[0] if cell]
    texts = all(not cell.replace(".", "").replace(",", "").replace("-", "").isdigit() for cell in first)
    return int(texts and len(first) >= max(1, 0.6 * width))


def _filled(sheet: Sheet) -> list[list[str]]:
    """Cells as shown; a merged range repeats its value in each of its places."""
    rows = [list(row) for row in sheet.rows]
    top, left = sheet.origin
    for (row, column), text in sheet.shown.items():
        if 0 <= row - top < len(rows) and 0 <= column - left < len(rows[row - top]):
            rows[row - top][column - left] = text
    budget = MAX_CELLS
    for y0, x0, y1, x1 in sheet.merged:
        if not (0 <= y0 - top < len(rows) and 0 <= x0 - left < len(rows[y0 - top])):
            continue
        text = rows[y0 - top][x0 - left]
        wide_title = x1 - x0 + 1 > 0.5 * max(1, len(rows[y0 - top]))
        budget -= (y1 - y0 + 1) * (x1 - x0 + 1)
        if not text or wide_title or budget < 0:
            continue
        for y in range(y0 - top, min(y1 - top + 1, len(rows))):
            for x in range(x0 - left, min(x1 - left + 1, len(rows[y]))):
                rows[y][x] = rows[y][x] or text
    return rows
