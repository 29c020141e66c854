"""Writes a source as DOCX: headings, lists, tables with repeated headers, footnotes, text boxes, running header."""

from __future__ import annotations

import io
import re
import zipfile
from datetime import datetime

import docx
from docx.document import Document
from docx.enum.text import WD_ALIGN_PARAGRAPH
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn
from docx.shared import Cm, Pt, RGBColor
from docx.text.paragraph import Paragraph
from markdown_it.token import Token

from .docx_parts import add_footnotes, add_page_number, add_reference, add_text_box, restarted_numbering
from .source import Block, Callout, Heading, PageBreak, Prose, Source, Table, inline_text

_FOOTNOTE = re.compile(r"\^\[([^\]]+)\]")
_ZIP_TIME = (2026, 1, 1, 0, 0, 0)
_ACCENT = RGBColor(0x8A, 0x3B, 0x12)
_ALIGNMENTS = {"right": WD_ALIGN_PARAGRAPH.RIGHT, "center": WD_ALIGN_PARAGRAPH.CENTER}
_BOX_WIDTH_PT = 440.0


def write_docx(source: Source) -> bytes:
    """The document as DOCX; the same source always gives the same bytes."""
    writer = _Writer(source)
    for block in source.blocks:
        writer.add(block)
    return _repacked(writer.finish())


class _Writer:
    """One document in the making, with the footnotes met so far."""

    def __init__(self, source: Source) -> None:
        self._meta = source.meta
        self._document: Document = docx.Document()
        self._notes: list[str] = []
        self._boxes = 0
        _set_fonts(self._document, chinese=self._meta.get("language") == "zh")
        self._front()

    def add(self, block: Block) -> None:
        """Append one block."""
        match block:
            case Heading():
                self._document.add_heading(inline_text(block.inline), level=block.level)
            case Prose():
                self._prose(block.tokens)
            case Callout():
                self._box(block)
            case Table():
                self._table(block)
            case PageBreak():
                self._document.add_page_break()

    def finish(self) -> bytes:
        """The package as python-docx saves it."""
        if self._notes:
            add_footnotes(self._document, self._notes)
        buffer = io.BytesIO()
        self._document.save(buffer)
        return buffer.getvalue()

    def _front(self) -> None:
        core, date = self._document.core_properties, datetime.fromisoformat(self._meta["date"])
        core.title, core.author, core.last_modified_by = self._meta["title"], self._meta["owner"], self._meta["owner"]
        core.created, core.modified, core.revision = date, date, 1
        core.comments, core.language = "", self._meta.get("language", "en")
        section = self._document.sections[0]
        section.page_width, section.page_height = Cm(21.0), Cm(29.7)
        section.left_margin = section.right_margin = Cm(2.4)
        running = self._meta.get("header", self._meta["title"])
        section.header.paragraphs[0].text = f"{running}\t\t{self._meta['document']}"
        footer = section.footer.paragraphs[0]
        footer.text = f"{self._meta['footer']}\t\t"
        add_page_number(footer)
        self._document.add_heading(self._meta["title"], level=0)
        facts = self._document.add_paragraph(self._meta["facts"])
        facts.runs[0].font.size = Pt(9)
        facts.runs[0].font.color.rgb = RGBColor(0x55, 0x55, 0x55)

    def _prose(self, tokens: tuple[Token, ...]) -> None:
        lists: list[tuple[str, int | None]] = []
        for token in tokens:
            if token.type == "bullet_list_open":
                lists.append(("List Bullet", None))
            elif token.type == "ordered_list_open":
                lists.append(("List Number", restarted_numbering(self._document, "List Number")))
            elif token.type.endswith("list_close"):
                lists.pop()
            elif token.type == "inline":
                paragraph = self._document.add_paragraph(style=_list_style(lists))
                if lists and lists[-1][1] is not None:
                    _set_numbering(paragraph, lists[-1][1])
                self._runs(paragraph, token)

    def _runs(self, paragraph: Paragraph, inline: Token) -> None:
        bold = italic = False
        for child in inline.children or []:
            if child.type in {"strong_open", "strong_close"}:
                bold = child.type == "strong_open"
            elif child.type in {"em_open", "em_close"}:
                italic = child.type == "em_open"
            elif child.content or child.type == "softbreak":
                self._text(paragraph, child.content or " ", bold=bold, italic=italic)

    def _text(self, paragraph: Paragraph, text: str, *, bold: bool, italic: bool) -> None:
        for position, part in enumerate(_FOOTNOTE.split(text)):
            if position % 2:
                self._notes.append(part)
                add_reference(paragraph, len(self._notes))
            elif part:
                run = paragraph.add_run(part)
                run.bold, run.italic = bold or None, italic or None

    def _box(self, block: Callout) -> None:
        lines = [inline_text(token) for token in block.tokens if token.type == "inline"]
        self._boxes += 1
        rows = sum(1 + len(line) // 84 for line in lines)
        add_text_box(
            self._document.add_paragraph(), lines, number=self._boxes, width_pt=_BOX_WIDTH_PT, height_pt=14 + 21 * rows
        )

    def _table(self, table: Table) -> None:
        grid = self._document.add_table(rows=0, cols=len(table.header), style="Table Grid")
        for number, row in enumerate((table.header, *table.rows)):
            cells = grid.add_row()
            for cell, token, alignment in zip(cells.cells, row, table.alignments, strict=True):
                paragraph = cell.paragraphs[0]
                self._runs(paragraph, token)
                paragraph.alignment = _ALIGNMENTS.get(alignment)
                paragraph.paragraph_format.space_after = Pt(2)
                for run in paragraph.runs:
                    run.font.size, run.bold = Pt(9.5), True if number == 0 else run.bold
                if number == 0:
                    shading = f'<w:shd {nsdecls("w")} w:val="clear" w:fill="F3E6DE"/>'
                    cell._tc.get_or_add_tcPr().append(parse_xml(shading))
            properties = cells._tr.get_or_add_trPr()
            properties.append(parse_xml(f"<w:cantSplit {nsdecls('w')}/>"))
            if number == 0:
                properties.append(parse_xml(f"<w:tblHeader {nsdecls('w')}/>"))
        self._document.add_paragraph()


def _list_style(lists: list[tuple[str, int | None]]) -> str | None:
    if not lists:
        return None
    return lists[-1][0] if len(lists) == 1 else f"{lists[-1][0]} {len(lists)}"


def _set_numbering(paragraph: Paragraph, number: int) -> None:
    properties = paragraph._p.get_or_add_pPr().get_or_add_numPr()
    properties.get_or_add_ilvl().val = 0
    properties.get_or_add_numId().val = number


def _set_fonts(document: Document, *, chinese: bool) -> None:
    for name in ("Normal", "Title", "Heading 1", "Heading 2", "Heading 3"):
        style = document.styles[name]
        style.font.name = "Calibri"
        fonts = style.element.get_or_add_rPr().get_or_add_rFonts()
        for attribute in ("asciiTheme", "hAnsiTheme", "eastAsiaTheme", "cstheme"):
            fonts.attrib.pop(qn(f"w:{attribute}"), None)
        fonts.set(qn("w:eastAsia"), "Microsoft YaHei" if chinese else "Calibri")
        if name != "Normal":
            style.font.color.rgb = _ACCENT
    document.styles["Normal"].font.size = Pt(10.5)


def _repacked(package: bytes) -> bytes:
    """The same package with fixed time stamps, so that the bytes depend on the source alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as old, zipfile.ZipFile(buffer, "w") as new:
        for entry in old.infolist():
            if entry.filename == "docProps/thumbnail.jpeg":
                continue
            fixed = zipfile.ZipInfo(entry.filename, date_time=_ZIP_TIME)
            fixed.compress_type, fixed.create_system = zipfile.ZIP_DEFLATED, 3
            new.writestr(fixed, _without_thumbnail(entry.filename, old.read(entry)))
    return buffer.getvalue()


def _without_thumbnail(name: str, content: bytes) -> bytes:
    """Drop the template's preview picture, which shows another document."""
    if name != "_rels/.rels":
        return content
    return re.sub(rb"<Relationship [^>]*thumbnail[^>]*/>", b"", content)
