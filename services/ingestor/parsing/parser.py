"""What a parser is: a way to open a file of one kind and read it stretch by stretch."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.domain.blocks import Block, DocumentKind, DocumentMetadata, ParsedPart, ParseWarning


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseOptions:
    """How to read a document, and the limits that end the reading in DOCUMENT_LIMIT.

    `filename` is a hint between kinds of text, nothing more. `stretch_seconds` ends a stretch of pages early, so that
    each stays well within the time limit of a worker.
    """

    filename: str = ""
    password: str | None = None
    declared_encoding: str = ""
    ocr: bool = True
    max_seconds: float = 60.0
    stretch_seconds: float = 12.0
    max_text_chars: int = 50_000_000
    max_unpacked_bytes: int = 768 << 20


class ParsedSource(Protocol):
    """An open document. `page_count` is 0 where the format has no pages."""

    @property
    def kind(self) -> DocumentKind: ...

    @property
    def page_count(self) -> int: ...

    @property
    def metadata(self) -> DocumentMetadata: ...

    def parts(self, first_page: int = 1) -> Iterator[ParsedPart]:
        """The document from `first_page` on, a few pages at a time; a document without pages is one part.

        Raises DocumentError: UNREADABLE_DOCUMENT, DOCUMENT_LIMIT, NO_TEXT (only when the whole document was read).
        """
        ...

    def close(self) -> None: ...


class Parser(Protocol):
    def open(self, path: Path, options: ParseOptions) -> ParsedSource:
        """Raises DocumentError: UNREADABLE_DOCUMENT, PASSWORD_REQUIRED, DOCUMENT_LIMIT."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A whole document without pages, as its reader made it."""

    blocks: tuple[Block, ...]
    metadata: DocumentMetadata
    warnings: tuple[ParseWarning, ...] = ()
    kind: DocumentKind | None = None
