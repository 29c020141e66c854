"""Lays a source out as PDF: columns, tables that repeat their header, running headers and footers, outline."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field

import pymupdf

from .source import Block, Callout, Heading, PageBreak, Prose, Source, Table, inline_html, inline_text

PAGE = pymupdf.paper_rect("a4")
MARGIN_PT = 56.0
TOP_PT = 74.0
BOTTOM_PT = PAGE.y1 - 66.0
GUTTER_PT = 22.0
CELL_PAD_PT = 4.0
MIN_ROOM_PT = 30.0
HEADING_ROOM_PT = 62.0
WORD_PT = 4.9
SHORT_TABLE_PT = 260.0
ENDLESS_PT = 20_000.0

Colour = tuple[float, float, float]
GREY: Colour = (0.72, 0.72, 0.72)


def write_pdf(source: Source) -> bytes:
    """The document as a PDF with subset fonts; the same source always gives the same bytes."""
    pages = _Layout(source, page_total=0).run().pages
    layout = _Layout(source, page_total=len(pages)).run()
    document = pymupdf.open("pdf", layout.buffer.getvalue())
    for page, sheet in zip(document, layout.pages, strict=True):
        _paint(page, sheet)
    document.set_toc(layout.outline)
    document.set_metadata(
        {
            "title": source.meta["title"],
            "author": source.meta["owner"],
            "subject": source.meta.get("subtitle", ""),
            "creationDate": f"D:{source.meta['date'].replace('-', '')}090000Z",
            "modDate": f"D:{source.meta['date'].replace('-', '')}090000Z",
        }
    )
    document.subset_fonts()
    return document.tobytes(garbage=4, deflate=True, use_objstms=1, no_new_id=True)


@dataclass(slots=True)
class _Sheet:
    """What is painted under and over the text of one page."""

    fills: list[tuple[pymupdf.Rect, Colour]] = field(default_factory=list)
    rules: list[tuple[float, float, float, Colour, float]] = field(default_factory=list)


def _paint(page: pymupdf.Page, sheet: _Sheet) -> None:
    shape = page.new_shape()
    for rect, colour in sheet.fills:
        shape.draw_rect(rect)
        shape.finish(fill=colour, color=None, width=0)
    for x0, x1, y, colour, width in sheet.rules:
        shape.draw_line(pymupdf.Point(x0, y), pymupdf.Point(x1, y))
        shape.finish(color=colour, width=width)
    shape.commit(overlay=False)


class _Layout:
    """One pass over the blocks, from the top of the first page to the end of the last."""

    def __init__(self, source: Source, *, page_total: int) -> None:
        self._source = source
        self._meta = source.meta
        self._page_total = page_total
        self._accent = _colour(self._meta.get("accent", "#8a3b12"))
        self._tint: Colour = tuple(1 - (1 - part) * 0.13 for part in self._accent)  # type: ignore[assignment]
        self._css = _css(self._meta)
        self.buffer = io.BytesIO()
        self._writer = pymupdf.DocumentWriter(self.buffer)
        self.pages: list[_Sheet] = []
        self.outline: list[list[object]] = []
        self._columns = int(self._meta.get("columns", "1"))
        self._column = 0
        self._top = TOP_PT
        self._y = TOP_PT

    def run(self) -> _Layout:
        """Lay out everything and close the file in `buffer`."""
        self._begin_page()
        self._title()
        blocks = self._source.blocks
        for block, following in zip(blocks, (*blocks[1:], None), strict=True):
            self._place(block, following)
        self._writer.end_page()
        self._writer.close()
        return self

    # -- frames ---------------------------------------------------------------------------------------------------

    @property
    def _width(self) -> float:
        return (PAGE.width - 2 * MARGIN_PT - (self._columns - 1) * GUTTER_PT) / self._columns

    @property
    def _x(self) -> float:
        return MARGIN_PT + self._column * (self._width + GUTTER_PT)

    def _begin_page(self) -> None:
        if self.pages:
            self._writer.end_page()
        self.pages.append(_Sheet())
        self._device = self._writer.begin_page(PAGE)
        self._column, self._top, self._y = 0, TOP_PT, TOP_PT
        self._running(34.0, self._meta.get("header", self._meta["title"]), self._meta["document"])
        number = f"{len(self.pages)} / {self._page_total}"
        self._running(PAGE.y1 - 46.0, self._meta["footer"], number)
        self.pages[-1].rules.append((MARGIN_PT, PAGE.x1 - MARGIN_PT, 52.0, GREY, 0.5))
        self.pages[-1].rules.append((MARGIN_PT, PAGE.x1 - MARGIN_PT, PAGE.y1 - 52.0, GREY, 0.5))

    def _running(self, y: float, left: str, right: str) -> None:
        rect = pymupdf.Rect(MARGIN_PT, y, PAGE.x1 - MARGIN_PT - 90, y + 18)
        self._draw(f'<p class="running">{left}</p>', rect)
        rect = pymupdf.Rect(PAGE.x1 - MARGIN_PT - 90, y, PAGE.x1 - MARGIN_PT, y + 18)
        self._draw(f'<p class="running right">{right}</p>', rect)

    def _next_column(self) -> None:
        if self._column + 1 < self._columns:
            self._column, self._y = self._column + 1, self._top
        else:
            self._begin_page()

    # -- blocks ---------------------------------------------------------------------------------------------------

    def _title(self) -> None:
        rect = pymupdf.Rect(MARGIN_PT, self._y + 4, PAGE.x1 - MARGIN_PT, ENDLESS_PT)
        html = f'<h1 class="title">{self._meta["title"]}</h1>'
        if subtitle := self._meta.get("subtitle"):
            html += f'<p class="subtitle">{subtitle}</p>'
        html += f'<p class="facts">{self._meta["facts"]}</p>'
        bottom = self._draw(html, rect)
        self.pages[-1].rules.append((MARGIN_PT, PAGE.x1 - MARGIN_PT, bottom + 7, self._accent, 1.6))
        self._top = self._y = bottom + 20

    def _place(self, block: Block, following: Block | None) -> None:
        match block:
            case PageBreak():
                self._begin_page()
            case Heading():
                self._heading(block, following)
            case Prose():
                self._flow(block.html)
            case Callout():
                self._callout(block)
            case Table():
                self._table(block)

    def _heading(self, block: Heading, following: Block | None) -> None:
        if self._y > self._top:
            self._y += 9.0 if block.level == 1 else 4.0
        html = f"<h{block.level}>{inline_html(block.inline)}</h{block.level}>"
        room = self._room(following)
        if self._y + self._height(html, self._width) + room + 8 > BOTTOM_PT:
            self._next_column()
        self.outline.append([block.level, inline_text(block.inline), len(self.pages)])
        rect = pymupdf.Rect(self._x, self._y, self._x + self._width, ENDLESS_PT)
        self._y = self._draw(html, rect) + 4.0

    def _room(self, following: Block | None) -> float:
        """What must fit below a heading for it to stay on this page."""
        match following:
            case Table():
                return self._table_room(following)
            case Heading():
                return HEADING_ROOM_PT + 30
            case _:
                return HEADING_ROOM_PT

    def _flow(self, html: str) -> None:
        story = self._story(html)
        more = 1
        while more:
            if BOTTOM_PT - self._y < MIN_ROOM_PT:
                self._next_column()
            more, filled = story.place(pymupdf.Rect(self._x, self._y, self._x + self._width, BOTTOM_PT))
            story.draw(self._device)
            self._y = pymupdf.Rect(filled).y1
            if more:
                self._next_column()
        self._y += 6.0

    def _callout(self, block: Callout) -> None:
        inset = 10.0
        height = self._height(block.html, self._width - 2 * inset)
        if self._y + height + 14 > BOTTOM_PT:
            self._next_column()
        box = pymupdf.Rect(self._x, self._y, self._x + self._width, self._y + height + 12)
        self.pages[-1].fills.append((box, self._tint))
        self.pages[-1].fills.append((pymupdf.Rect(box.x0, box.y0, box.x0 + 3, box.y1), self._accent))
        self._draw(block.html, pymupdf.Rect(box.x0 + inset, box.y0 + 6, box.x1 - inset, ENDLESS_PT))
        self._y = box.y1 + 9.0

    def _table(self, table: Table) -> None:
        if self._y + self._table_room(table) > BOTTOM_PT:
            self._next_column()
        widths = _column_widths(table, self._width)
        header, *heights = self._row_heights(table, widths)
        self._row(table, table.header, widths, header, bold=True)
        for number, (row, height) in enumerate(zip(table.rows, heights, strict=True)):
            last_two = sum(heights[number:]) if number == len(heights) - 2 else height
            if self._y + last_two > BOTTOM_PT:
                self._next_column()
                self._row(table, table.header, widths, header, bold=True)
            self._row(table, row, widths, height, bold=False)
        self._y += 11.0

    def _table_room(self, table: Table) -> float:
        """The height a table asks for before it starts: all of a short one, header and two rows of a long one."""
        heights = self._row_heights(table, _column_widths(table, self._width))
        return sum(heights) if sum(heights) <= SHORT_TABLE_PT else sum(heights[:3])

    def _row_heights(self, table: Table, widths: list[float]) -> list[float]:
        rows = (self._row_height(row, widths, bold=False) for row in table.rows)
        return [self._row_height(table.header, widths, bold=True), *rows]

    def _row(self, table: Table, row: tuple[object, ...], widths: list[float], height: float, *, bold: bool) -> None:
        sheet, x = self.pages[-1], self._x
        if bold:
            sheet.fills.append((pymupdf.Rect(x, self._y, x + self._width, self._y + height), self._tint))
            sheet.rules.append((x, x + self._width, self._y, self._accent, 1.0))
        for cell, width, alignment in zip(row, widths, table.alignments, strict=True):
            rect = pymupdf.Rect(x + CELL_PAD_PT, self._y + CELL_PAD_PT - 1, x + width - CELL_PAD_PT, ENDLESS_PT)
            self._draw(_cell_html(cell, bold=bold, alignment=alignment), rect)
            x += width
        self._y += height
        sheet.rules.append((self._x, self._x + self._width, self._y, self._accent if bold else GREY, 0.5))

    def _row_height(self, row: tuple[object, ...], widths: list[float], *, bold: bool) -> float:
        cells = zip(row, widths, strict=True)
        heights = (self._height(_cell_html(cell, bold=bold), width - 2 * CELL_PAD_PT) for cell, width in cells)
        return max(heights) + 2 * CELL_PAD_PT

    # -- stories --------------------------------------------------------------------------------------------------

    def _story(self, html: str) -> pymupdf.Story:
        return pymupdf.Story(f"<body>{html}</body>", user_css=self._css, em=10)

    def _height(self, html: str, width: float) -> float:
        _, filled = self._story(html).place(pymupdf.Rect(0, 0, width, ENDLESS_PT))
        return float(pymupdf.Rect(filled).height)

    def _draw(self, html: str, rect: pymupdf.Rect) -> float:
        """Draw HTML that fits the rectangle; returns where it ended."""
        story = self._story(html)
        _, filled = story.place(rect)
        story.draw(self._device)
        return float(pymupdf.Rect(filled).y1)


def _cell_html(cell: object, *, bold: bool, alignment: str = "left") -> str:
    html = inline_html(cell)  # type: ignore[arg-type]
    return f'<p class="cell {alignment}">{f"<b>{html}</b>" if bold else html}</p>'


def _column_widths(table: Table, total: float) -> list[float]:
    """Widths in pt from the hints, else from the longest text (damped); no column is narrower than its longest word."""
    columns = list(zip(table.header, *table.rows, strict=True))
    weights = list(table.widths) or [_weight(column) for column in columns]
    floors = [_longest_word(column) * WORD_PT + 2 * CELL_PAD_PT for column in columns]
    widths = [total * weight / sum(weights) for weight in weights]
    lacking = sum(max(0.0, floor - width) for width, floor in zip(widths, floors, strict=True))
    spare = sum(max(0.0, width - floor) for width, floor in zip(widths, floors, strict=True))
    shrink = min(1.0, lacking / spare) if spare else 0.0
    return [max(floor, width - shrink * (width - floor)) for width, floor in zip(widths, floors, strict=True)]


def _weight(column: tuple[object, ...]) -> float:
    longest = max(_span(inline_text(cell)) for cell in column)  # type: ignore[arg-type]
    return max(_longest_word(column) + 3.0, min(longest, 18 + max(longest - 18, 0) ** 0.75))


def _longest_word(column: tuple[object, ...]) -> int:
    texts = (inline_text(cell) for cell in column)  # type: ignore[arg-type]
    return max((len(word) for text in texts for word in text.split() if word.isascii()), default=1)


def _span(text: str) -> int:
    return sum(1 if ord(character) < 0x2E80 else 2 for character in text)


def _colour(code: str) -> Colour:
    red, green, blue = (int(code[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


def _css(meta: dict[str, str]) -> str:
    leading = "1.55" if meta.get("language") == "zh" else "1.4"
    rules = [*_rules(meta.get("accent", "#8a3b12"), meta.get("size", "9.6"), leading)]
    if meta.get("language") == "zh":
        # The Chinese font has no bold: Latin letters in a heading must not be bolder than their neighbours.
        rules.append("h1, h2, h3, p.cell b {font-weight: normal}")
    return "\n".join(rules)


def _rules(accent: str, size: str, leading: str) -> Iterator[str]:
    yield f"body {{font-family: sans-serif; font-size: {size}pt; line-height: {leading}; margin: 0; color: #1c1c1c}}"
    yield "p {margin: 0 0 4pt 0} ul, ol {margin: 0; padding-left: 16pt} li {margin: 0 0 3pt 0} li p {margin: 0}"
    yield f"h1 {{font-size: 14pt; margin: 0; color: {accent}; line-height: 1.25}}"
    yield "h2 {font-size: 11.2pt; margin: 0; color: #333333; line-height: 1.3}"
    yield "h3 {font-size: 9.8pt; margin: 0; color: #333333; line-height: 1.3}"
    yield f"h1.title {{font-size: 23pt; color: {accent}}}"
    yield "p.subtitle {font-size: 12.5pt; color: #555555; margin: 2pt 0}"
    yield "p.facts {font-size: 8.4pt; color: #555555; margin: 5pt 0 0 0}"
    yield "p.running {font-size: 7.6pt; color: #666666; margin: 0} p.right, p.cell.right {text-align: right}"
    yield "p.cell {font-size: 8.6pt; line-height: 1.28; margin: 0} p.center {text-align: center}"
    yield "pre {font-family: monospace; font-size: 8.2pt; margin: 0} code {font-family: monospace; font-size: 0.95em}"
