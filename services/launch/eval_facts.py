"""Facts about hard files ("p3: text", "Sheet!B2=value", "NOT: text", "ERR: ..."): read, and checked against a parse.

Text is compared after NFKC, without regard to runs of white space, cell separators, direction marks, soft hyphens and
curly apostrophes; where it holds CJK characters, blanks do not count at all.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from services.domain.blocks import Block, BlockKind


class FactKind(StrEnum):
    TEXT = "TEXT"
    ABSENT = "ABSENT"
    SHEET_CELL = "SHEET_CELL"
    CSV_CELL = "CSV_CELL"
    ERROR = "ERROR"
    LOCKED = "LOCKED"
    BOUNDED = "BOUNDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """`page` 0: anywhere. `row` and `column` from 1. `partial`: the cell merely contains the text."""

    kind: FactKind
    text: str
    page: int = 0
    sheet: str = ""
    row: int = 0
    column: int = 0
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What came of one file: blocks or an error (its reason), and the error without the password where it has one."""

    blocks: Sequence[Block] = ()
    error: str = ""
    error_without_password: str = ""


_PAGE = re.compile(r"p(\d+): (.*)", re.S)
_CSV_CELL = re.compile(r"r(\d+)c(\d+)=(.*)", re.S)
_SHEET_CELL = re.compile(r"([^!\n]{1,100})!([A-Z]{1,3})(\d{1,7})([=~])(.*)", re.S)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_CJK = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\u3040-\u30ff]")
_CLEAN_ERRORS = frozenset(
    {"EMPTY_FILE", "UNREADABLE_DOCUMENT", "UNSUPPORTED_FORMAT", "DOCUMENT_LIMIT", "NO_TEXT", "PASSWORD_REQUIRED"}
)


def parse_fact(line: str) -> Fact:
    """One fact in the syntax of the evaluation data."""
    if line.startswith("ERR without password"):
        return Fact(kind=FactKind.LOCKED, text=line.partition(":")[2].strip())
    for mark, kind in (("ERR:", FactKind.ERROR), ("LIVE:", FactKind.BOUNDED)):
        if line.startswith(mark):
            return Fact(kind=kind, text=line.removeprefix(mark).strip())
    if line.startswith("NOT"):
        inner = _located(line.removeprefix("NOT").lstrip(":").strip())
        return Fact(kind=FactKind.ABSENT, text=inner.text, page=inner.page)
    cell = _CSV_CELL.fullmatch(line)
    if cell:
        return Fact(kind=FactKind.CSV_CELL, row=int(cell[1]), column=int(cell[2]), text=cell[3])
    cell = _SHEET_CELL.fullmatch(line)
    if cell:
        return Fact(
            kind=FactKind.SHEET_CELL,
            sheet=cell[1],
            column=_column(cell[2]),
            row=int(cell[3]),
            partial=cell[4] == "~",
            text=cell[5],
        )
    return _located(line)


def holds(fact: Fact, parsed: Parsed) -> bool:  # noqa: PLR0911  one case a kind  # noqa: PLR0911 - one a kind
    match fact.kind:
        case FactKind.TEXT:
            return _contains(_text_on(parsed.blocks, fact.page), fact.text)
        case FactKind.ABSENT:
            return bool(parsed.blocks) and not _contains(_text_on(parsed.blocks, fact.page), fact.text)
        case FactKind.CSV_CELL:
            rows = [row for block in parsed.blocks for row in block.rows]
            at = rows[fact.row - 1] if fact.row <= len(rows) else ()
            return fact.column <= len(at) and _same_value(at[fact.column - 1], fact.text)
        case FactKind.SHEET_CELL:
            cells = _cells_of(parsed.blocks, fact.sheet)
            if fact.partial:
                return any(_contains(cell, fact.text) for cell in cells)
            return any(_same_value(cell, fact.text) for cell in cells)
        case FactKind.ERROR:
            return parsed.error in _CLEAN_ERRORS
        case FactKind.LOCKED:
            return parsed.error_without_password == "PASSWORD_REQUIRED"  # noqa: S105  a reason
        case FactKind.BOUNDED:
            return True


def normalised(text: str) -> str:
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    text = text.replace("\u2019", "'").replace("\u2018", "'").replace(" | ", " ")
    return " ".join(text.split())


def _located(line: str) -> Fact:
    match = _PAGE.fullmatch(line)
    return Fact(kind=FactKind.TEXT, page=int(match[1]), text=match[2]) if match else Fact(kind=FactKind.TEXT, text=line)


def _text_on(blocks: Sequence[Block], page: int) -> str:
    return "\n".join(block.text for block in blocks if page in (0, block.page))


def _contains(text: str, needle: str) -> bool:
    haystack, wanted = normalised(text), normalised(needle)
    if _CJK.search(wanted):
        haystack, wanted = haystack.replace(" ", ""), wanted.replace(" ", "")
    return wanted in haystack


def _cells_of(blocks: Sequence[Block], sheet: str) -> Iterator[str]:
    """Cells of the tables under the heading that names the sheet."""
    inside = False
    for block in blocks:
        if block.kind is BlockKind.HEADING and block.level == 1:
            inside = normalised(block.text) == normalised(sheet)
        elif inside:
            for row in block.rows:
                yield from row


def _same_value(cell: str, wanted: str) -> bool:
    one, other = normalised(cell), normalised(wanted)
    return one == other or one == other.removesuffix(" 00:00:00") or _as_number(one) == _as_number(other) != ""


def _as_number(text: str) -> str:
    """A number in one spelling; empty for other text, and for digits whose spelling matters (leading zeros)."""
    if not re.fullmatch(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?", text):
        return ""
    return repr(float(text))


def _column(letters: str) -> int:
    column = 0
    for letter in letters:
        column = column * 26 + ord(letter) - 64
    return column
