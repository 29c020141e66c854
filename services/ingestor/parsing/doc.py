"""Word binary documents (DOC): the text and its tables, by our own reader."""

from pathlib import Path

from services.domain.blocks import Block, BlockKind
from services.ingestor.parsing.cleaning import squeeze
from services.ingestor.parsing.doc_binary import doc_text
from services.ingestor.parsing.ole_metadata import ole_metadata
from services.ingestor.parsing.parser import ParseOptions, Reading
from services.ingestor.parsing.tables import table_block

_CELL = "\x07"
_NOTE_MARKS = str.maketrans(dict.fromkeys("\x01\x02\x03\x04\x05\x06\x08\x13\x14\x15\x1f\x00", ""))
_BREAKS = str.maketrans({"\x0b": "\n", "\x0c": "\r", "\x0e": "\r", "\x1e": "\u2011", "\xa0": " "})


def read_doc(path: Path, options: ParseOptions) -> Reading:
    """Raises UNREADABLE_DOCUMENT, PASSWORD_REQUIRED."""
    del options
    text = doc_text(path)
    return Reading(blocks=tuple(_blocks(text)), metadata=ole_metadata(path))


def _blocks(text: str) -> list[Block]:
    """Paragraphs end with a carriage return, cells and rows of tables with a bell."""
    blocks: list[Block] = []
    for part in _without_fields(text).translate(_BREAKS).split("\r"):
        if _CELL not in part:
            _add_paragraph(blocks, part)
            continue
        *cells, rest = part.split(_CELL)
        _extend_cells(blocks, cells)
        _add_paragraph(blocks, rest)
    return _finish(blocks)


def _without_fields(text: str) -> str:
    """Fields as their results: the instruction between the begin and separator marks goes."""
    out: list[str] = []
    depth: list[bool] = []  # one entry an open field: whether its result has begun
    for char in text:
        if char == "\x13":
            depth.append(False)
        elif char == "\x14" and depth:
            depth[-1] = True
        elif char == "\x15" and depth:
            depth.pop()
        elif all(depth):
            out.append(char)
    return "".join(out)


def _add_paragraph(blocks: list[Block], part: str) -> None:
    text = squeeze(part.translate(_NOTE_MARKS))
    if text:
        blocks.append(Block(kind=BlockKind.PARAGRAPH, text=text))


def _extend_cells(blocks: list[Block], cells: list[str]) -> None:
    """Cells of one stretch; a table whose cells hold several paragraphs comes in many, joined in `_finish`."""
    blocks.append(
        Block(kind=BlockKind.TABLE, text="", rows=(tuple(squeeze(cell.translate(_NOTE_MARKS)) for cell in cells),))
    )


def _finish(blocks: list[Block]) -> list[Block]:
    """Raw cells as tables: consecutive stretches joined, rows told apart by the empty cell that ends each."""
    finished: list[Block] = []
    pending: list[str] = []
    for block in [*blocks, None]:
        if block is not None and block.kind is BlockKind.TABLE:
            pending.extend(block.rows[0])
            continue
        if pending:
            table = table_block(rows_of(pending))
            finished.extend([table] if table else [])
            pending = []
        if block is not None:
            finished.append(block)
    return finished


def rows_of(cells: list[str]) -> list[list[str]]:
    """Rows out of a run of cells: in a regular table every (columns + 1)th is the empty mark of a row end."""
    if not cells:
        return []
    for columns in range(1, min(64, len(cells))):
        ends = cells[columns :: columns + 1]
        if len(cells) % (columns + 1) == 0 and not any(ends):
            return [cells[i : i + columns] for i in range(0, len(cells), columns + 1)]
    rows: list[list[str]] = [[]]
    for cell in cells:
        if cell or not rows[-1]:
            rows[-1].append(cell)
        else:
            rows.append([])
    return [row for row in rows if any(row)]
