"""Tables as blocks: rows of equal length, and the text that shows them."""

from collections.abc import Iterable, Sequence

from services.domain.blocks import Block, BlockKind, BoundingBox
from services.ingestor.parsing.cleaning import one_line

CELL_SEPARATOR = " | "


def table_block(
    rows: Sequence[Sequence[str]],
    *,
    header_rows: int = 0,
    page: int | None = None,
    box: BoundingBox | None = None,
) -> Block | None:
    """A TABLE of the rows that hold anything, padded to one width; None when there is none.

    A cell is one line of text; a bar inside it is kept, the `rows` are exact.
    """
    clean = [_once(one_line(cell) for cell in row) for row in rows]
    kept = [(index, row) for index, row in enumerate(clean) if any(row)]
    if not kept:
        return None
    width = max(max(i for i, cell in enumerate(row) if cell) + 1 for _, row in kept)
    first = min(min(i for i, cell in enumerate(row) if cell) for _, row in kept)
    even = tuple(tuple((row + [""] * width)[first:width]) for _, row in kept)
    headers = sum(1 for index, _ in kept if index < header_rows)
    return Block(
        kind=BlockKind.TABLE,
        text="\n".join(CELL_SEPARATOR.join(row).strip() for row in even),
        rows=even,
        header_rows=min(headers, max(0, len(even) - 1)),
        page=page,
        box=box,
    )


def _once(cells: Iterable[str]) -> list[str]:
    """A row that says one thing in every place (a title over all columns) says it once."""
    row = list(cells)
    if len(row) > 2 and row[0] and all(cell == row[0] for cell in row):
        return [row[0], *([""] * (len(row) - 1))]
    return row
