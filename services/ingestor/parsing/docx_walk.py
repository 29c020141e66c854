"""Walks the body of a Word document and makes blocks of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from services.domain.blocks import Block, BlockKind
from services.ingestor.parsing.cleaning import one_line, squeeze
from services.ingestor.parsing.docx_text import Anchored, mark_deleted, paragraph_text
from services.ingestor.parsing.ooxml import Element, alternatives, attribute, child, child_value, local
from services.ingestor.parsing.parser import Reading
from services.ingestor.parsing.tables import table_block

if TYPE_CHECKING:
    from services.ingestor.parsing.docx import DocxDocument

_WRAPPERS = frozenset({"sdtContent", "customXml", "smartTag", "ins", "moveTo", "sdt", "body", "txbxContent"})
_PAGE_NUMBER = re.compile(
    r"[\W_]*(?:page|seite|página|стр\.?|第)?[\W_]*\d*[\W_]*(?:of|von|de|из|/|页|頁)?[\W_]*\d*[\W_]*", re.I
)
_MAX_DEPTH = 40
_MAX_SPAN = 64


class Walk:
    """One walk over one document. `embedded` reads an altChunk by its relation."""

    def __init__(self, document: DocxDocument, embedded: Callable[[str], Reading | None]) -> None:
        self._document = document
        self._embedded = embedded
        self._seen_furniture: set[str] = set()
        self._carried = ""

    def whole(self) -> list[Block]:
        """Body, with headers where their section begins, footers where it ends, and endnotes last; each text once."""
        sections = [entry for entry in self._document.body.iter() if local(entry) == "sectPr" and _is_live(entry)]
        blocks: list[Block] = self._furniture(sections[:1], "headerReference")
        passed = 0
        for entry in self._document.body:
            blocks.extend(self._element(entry, 0))
            while passed < len(sections) and _inside(sections[passed], entry):
                blocks.extend(self._furniture(sections[passed : passed + 1], "footerReference"))
                passed += 1
                blocks.extend(self._furniture(sections[passed : passed + 1], "headerReference"))
        blocks.extend(self._carry_over())
        return _joined_lists(blocks)

    def _element(self, entry: Element, depth: int) -> Iterator[Block]:
        name = local(entry)
        if depth > _MAX_DEPTH:
            text = one_line("".join(t.text or "" for t in entry.iter() if local(t) == "t"))
            yield from [Block(kind=BlockKind.PARAGRAPH, text=text)] if text else []
        elif name == "p":
            yield from self._paragraph(entry, depth)
        elif name == "tbl":
            yield from self._table(entry, depth)
        elif name in _WRAPPERS:
            for inner in entry:
                yield from self._element(inner, depth + 1)
        elif name == "AlternateContent":
            for inner in alternatives(entry):
                yield from self._element(inner, depth + 1)
        elif name == "altChunk":
            reading = self._embedded(attribute(entry, "id") or "")
            yield from reading.blocks if reading is not None else ()

    def _paragraph(self, paragraph: Element, depth: int) -> Iterator[Block]:
        anchored = Anchored()
        text = self._carried + paragraph_text(paragraph, anchored)
        self._carried = ""
        if mark_deleted(paragraph):
            self._carried, text = text, ""
        text = squeeze(text)
        if text:
            yield self._text_block(paragraph, text)
        for picture in anchored.pictures:
            yield Block(kind=BlockKind.FIGURE, text=one_line(picture))
        for box in anchored.boxes:
            for inner in box:
                yield from self._element(inner, depth + 1)
        yield from self._notes(anchored, depth)

    def _text_block(self, paragraph: Element, text: str) -> Block:
        level = self._document.styles.heading_level(paragraph)
        numbering = self._document.styles.numbering(paragraph)
        label = self._document.numbering.next_label(*numbering) if numbering else None
        if level:
            shown = f"{label.text} {text}" if label is not None and label.text not in ("", "-") else text
            return Block(kind=BlockKind.HEADING, text=one_line(shown), level=level)
        if label is not None:
            indent = "  " * label.depth
            return Block(
                kind=BlockKind.LIST, text=f"{indent}{label.text} {text}".rstrip() if label.text else indent + text
            )
        return Block(kind=BlockKind.PARAGRAPH, text=text)

    def _notes(self, anchored: Anchored, depth: int) -> Iterator[Block]:
        """Footnotes and endnotes right after the paragraph that refers to them, where a search needs them."""
        pairs = [(self._document.footnotes, ref) for ref in anchored.footnotes]
        pairs += [(self._document.endnotes, ref) for ref in anchored.endnotes]
        for notes, reference in pairs:
            note = notes.pop(reference, None)
            for inner in note if note is not None else ():
                yield from self._element(inner, depth + 1)

    def _table(self, table: Element, depth: int) -> Iterator[Block]:
        rows = [(row, list(_cells(row))) for row in _rows(table)]
        if max((len(cells) for _, cells in rows), default=0) <= 1:  # a frame around text, not a table
            for _, cells in rows:
                for cell in cells:
                    for inner in cell:
                        yield from self._element(inner, depth + 1)
            return
        grid: list[list[str]] = []
        above: list[str] = []
        for row, cells in rows:
            above = self._row(row, cells, above, depth)
            grid.append(above)
        block = table_block(grid, header_rows=_header_rows(table, rows))
        if block is not None:
            yield block

    def _row(self, row: Element, cells: list[Element], above: list[str], depth: int) -> list[str]:
        """The cells of a row; one merged with the row above repeats its text, so does one over columns."""
        out = [""] * min(_MAX_SPAN, int(child_value(row, "trPr", "gridBefore") or 0))
        for cell in cells:
            merged = child(cell, "tcPr", "vMerge")
            span = child_value(cell, "tcPr", "gridSpan") or "1"
            if merged is not None and attribute(merged, "val") in (None, "continue"):
                text = above[len(out)] if len(out) < len(above) else ""
            else:
                blocks = [block for inner in cell for block in self._element(inner, depth + 1)]
                text = "\n".join(block.text.replace(" | ", " ") for block in blocks)
            out.extend([text] * max(1, min(_MAX_SPAN, int(span) if span.isdigit() else 1)))
        return out

    def _furniture(self, sections: Iterable[Element], kind: str) -> list[Block]:
        """Headers or footers of sections: each text once in the document, page numbers never."""
        found: list[Block] = []
        for section in sections:
            for reference in section:
                if local(reference) != kind:
                    continue
                root = self._document.related(attribute(reference, "id") or "")
                for entry in root if root is not None else ():
                    for block in self._element(entry, 1):
                        key = one_line(block.text)
                        if key not in self._seen_furniture and not _PAGE_NUMBER.fullmatch(key):
                            self._seen_furniture.add(key)
                            found.append(
                                block
                                if block.kind is BlockKind.TABLE
                                else Block(kind=BlockKind.PARAGRAPH, text=block.text)
                            )
        return found

    def _carry_over(self) -> list[Block]:
        text, self._carried = squeeze(self._carried), ""
        return [Block(kind=BlockKind.PARAGRAPH, text=text)] if text else []


def _joined_lists(blocks: list[Block]) -> list[Block]:
    """Neighbouring list items as one LIST."""
    joined: list[Block] = []
    run: list[str] = []
    for block in blocks:
        if block.kind is BlockKind.LIST:
            run.append(block.text)
            continue
        if run:
            joined.append(Block(kind=BlockKind.LIST, text="\n".join(run)))
            run = []
        joined.append(block)
    return [*joined, Block(kind=BlockKind.LIST, text="\n".join(run))] if run else joined


def _rows(table: Element) -> Iterator[Element]:
    for entry in table:
        name = local(entry)
        if name == "tr":
            if child(entry, "trPr", "del") is None:
                yield entry
        elif name in _WRAPPERS:
            yield from _rows(entry)


def _cells(row: Element) -> Iterator[Element]:
    for entry in row:
        name = local(entry)
        if name == "tc":
            yield entry
        elif name in _WRAPPERS:
            yield from _cells(entry)


def _header_rows(table: Element, rows: list[tuple[Element, list[Element]]]) -> int:
    """Rows marked to repeat on each page; else the first one where the table's look singles it out."""
    marked = 0
    for row, _ in rows:
        if child(row, "trPr", "tblHeader") is None:
            break
        marked += 1
    if marked:
        return marked
    look = child(table, "tblPr", "tblLook")
    if look is None or len(rows) < 2:
        return 0
    first = attribute(look, "firstRow")
    if first is not None:
        return int(first.lower() in ("1", "true", "on"))
    try:
        return 1 if int(attribute(look, "val") or "0", 16) & 0x20 else 0
    except ValueError:
        return 0


def _is_live(section: Element) -> bool:
    parent = section.getparent()
    return parent is not None and local(parent) != "sectPrChange"


def _inside(section: Element, entry: Element) -> bool:
    return section is entry or any(ancestor is entry for ancestor in section.iterancestors())
