# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
"""One PDF page: which path suits it (text, tables, OCR, nothing), and the blocks it gives."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from services.domain.blocks import Block, PageRoute, ParseWarning
from services.ingestor.parsing.pages import PageParse, box_of, joined_lists
from services.ingestor.parsing.paragraphs import FontProfile, column_blocks
from services.ingestor.parsing.parser import ParseOptions
from services.ingestor.parsing.pdf_garbage import is_garbage
from services.ingestor.parsing.pdf_text import PageText
from services.ingestor.parsing.reading_order import regions
from services.ingestor.parsing.ruled_tables import ruled_tables
from services.ingestor.parsing.unruled_tables import unruled_runs

_FEW_CHARS = 8
_SCAN_CHARS = 120
_SCAN_SHARE = 0.7


def parse_page(
    page: Any, number: int, text: PageText, repeated: set[int], profile: FontProfile, options: ParseOptions
) -> PageParse:
    """Text and tables of the file where it has a good text layer, OCR where the page is a picture of text."""
    chars = text.chars
    garbage = chars > 0 and is_garbage(page, text)
    if not garbage and chars > 0 and not _is_scan(page, chars):
        return layer_page(number, text, repeated, profile)
    if not garbage and chars == 0 and not _shows_anything(page):
        return PageParse(blocks=(), route=PageRoute.EMPTY)
    return _scanned(page, number, text, repeated, profile, options, garbage)


def layer_page(number: int, text: PageText, repeated: set[int], profile: FontProfile) -> PageParse:
    """Blocks of the text layer."""
    blocks: list[Block] = []
    found_tables = False
    for index, group in enumerate(text.groups):
        fragments = [f for f in group if id(f) not in repeated]
        if index == 0:
            tables, fragments = ruled_tables(fragments, text.rules, number)
            found_tables = bool(tables)
        else:
            tables = []
        for lines in regions(fragments):
            for run, table in unruled_runs(lines, number):
                if table is not None:
                    blocks.append(table)
                    found_tables = True
                else:
                    blocks.extend(column_blocks(run, profile, number, lambda group: box_of(group, number)))
        blocks = _with_tables(blocks, tables)
    route = PageRoute.TABLE if found_tables else PageRoute.TEXT if blocks else PageRoute.EMPTY
    return PageParse(blocks=tuple(joined_lists(blocks)), route=route)


def _with_tables(blocks: list[Block], tables: Sequence[Block]) -> list[Block]:
    """Each table before the first block that stands below its top in the same column, or else at the end."""
    placed = list(blocks)
    for table in tables:
        box = table.box
        at = len(placed)
        for index, block in enumerate(placed):
            other = block.box
            if box and other and other.y0 >= box.y0 and min(other.x1, box.x1) > max(other.x0, box.x0):
                at = index
                break
        placed.insert(at, table)
    return placed


def _is_scan(page: Any, chars: int) -> bool:
    """A page-filling picture with a stamp or page number over it: the text is in the picture."""
    if chars > _SCAN_CHARS:
        return False
    area = abs(page.rect)
    covered = max((abs(page.rect & info["bbox"]) for info in page.get_image_info()), default=0.0)
    return area > 0 and covered > _SCAN_SHARE * area


def _shows_anything(page: Any) -> bool:
    """Whether a page without text has anything on it that could be read: a picture, or many outlines."""
    if page.get_image_info():
        return True
    return len(page.get_cdrawings()) > 0


def _scanned(
    page: Any,
    number: int,
    text: PageText,
    repeated: set[int],
    profile: FontProfile,
    options: ParseOptions,
    garbage: bool,
) -> PageParse:
    from services.ingestor.parsing.pdf_ocr import ocr_page

    parse = ocr_page(page, number, options)
    if parse.blocks:
        return parse
    if garbage:
        warning = ParseWarning(
            code="GARBAGE_TEXT", message="the text layer cannot be decoded (fonts without Unicode)", page=number
        )
        return replace(parse, warnings=(warning, *parse.warnings))
    if text.chars:
        found = layer_page(number, text, repeated, profile)
        return replace(found, warnings=parse.warnings)
    return parse
