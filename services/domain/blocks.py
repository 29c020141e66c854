"""What a parser makes of a document: blocks in human reading order, with their place in the original."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class DocumentKind(StrEnum):
    """The format of a document, decided from its content and never from its name."""

    PDF = "PDF"
    DOCX = "DOCX"
    DOC = "DOC"
    XLSX = "XLSX"
    XLS = "XLS"
    CSV = "CSV"
    MARKDOWN = "MARKDOWN"
    HTML = "HTML"
    TEXT = "TEXT"
    CODE = "CODE"
    IMAGE = "IMAGE"


class BlockKind(StrEnum):
    HEADING = "HEADING"
    PARAGRAPH = "PARAGRAPH"
    LIST = "LIST"
    TABLE = "TABLE"
    CODE = "CODE"
    FIGURE = "FIGURE"


class PageRoute(StrEnum):
    """Which path of the parser a page took."""

    TEXT = "TEXT"
    TABLE = "TABLE"
    OCR = "OCR"
    EMPTY = "EMPTY"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundingBox:
    """A rectangle on a page, in points (1/72 inch), origin at the top left of the page as it is read."""

    page: int
    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One parsed unit.

    `text` is what a reader sees, normalised to NFC with `\\n` line ends. A TABLE has its cells in `rows`, the
    first `header_rows` of which are the header; its `text` is the same table with cells separated by ` | `, one row a
    line. A HEADING has a `level` from 1. `page` is 1-based, None where the format has no pages. `start` and `end`
    are the character range of `text` in the document's text (see `place`), end exclusive.
    """

    kind: BlockKind
    text: str
    level: int = 0
    page: int | None = None
    box: BoundingBox | None = None
    rows: tuple[tuple[str, ...], ...] = ()
    header_rows: int = 0
    code_language: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseWarning:
    """Something a reader of the document should know: what happened, and on which page if it has one."""

    code: str
    message: str
    page: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentMetadata:
    """What the file says about itself, or the caller about the file. Empty means unknown."""

    title: str = ""
    author: str = ""
    language: str = ""
    document_type: str = ""
    source_url: str = ""
    tags: tuple[str, ...] = ()
    authoritative: bool = False
    created_time: datetime | None = None
    updated_time: datetime | None = None
    labels: dict[str, str | int | float | bool] = field(default_factory=dict[str, str | int | float | bool])


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedPart:
    """A stretch of a document: pages `first_page` to `last_page` (0 to 0 where the format has none)."""

    blocks: tuple[Block, ...]
    first_page: int = 0
    last_page: int = 0
    routes: tuple[PageRoute, ...] = ()
    warnings: tuple[ParseWarning, ...] = ()


BLOCK_SEPARATOR = "\n\n"
