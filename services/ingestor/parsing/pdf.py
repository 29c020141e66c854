# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
"""PDF documents, page by page: a stretch of pages at a time, each page on the path that suits it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.common.errors import DocumentError, Reason
from services.domain.blocks import DocumentKind, DocumentMetadata, PageRoute, ParsedPart, ParseWarning
from services.ingestor.parsing.furniture import furniture
from services.ingestor.parsing.language import detect_language
from services.ingestor.parsing.metadata import clean_title, pdf_time, short, tags_from
from services.ingestor.parsing.pages import PageParse
from services.ingestor.parsing.paragraphs import FontProfile
from services.ingestor.parsing.parser import ParseOptions
from services.ingestor.parsing.pdf_extras import embedded_files, page_extras
from services.ingestor.parsing.pdf_file import open_pdf
from services.ingestor.parsing.pdf_page import parse_page
from services.ingestor.parsing.pdf_text import PageText, page_text
from services.ingestor.parsing.unlocking import as_document_errors

STRETCH_PAGES = 48
_SAMPLE_PAGES = 12
_SAMPLE_CHARS = 3000


class PdfParser:
    def open(self, path: Path, options: ParseOptions) -> "PdfSource":
        return PdfSource(open_pdf(path, options.password), options)


class PdfSource:
    """One open PDF. Memory is bounded by one stretch: pages are let go, and MuPDF's store is emptied after each."""

    kind = DocumentKind.PDF

    def __init__(self, document: Any, options: ParseOptions) -> None:
        self._document = document
        self._options = options
        self.page_count: int = document.page_count
        self._profile, sample = self._look_around()
        self.metadata = self._read_metadata(sample)

    def parts(self, first_page: int = 1) -> Iterator[ParsedPart]:
        page = first_page
        while page <= self.page_count:
            with as_document_errors():
                part = self._stretch(page)
            if first_page == 1 and page == 1 and part.last_page == self.page_count and not part.blocks:
                raise DocumentError(no_text_message(part), reason=Reason.NO_TEXT)
            yield part
            page = part.last_page + 1

    def close(self) -> None:
        self._document.close()

    def _stretch(self, first: int) -> ParsedPart:
        """Pages from `first`: at most 48, fewer when they take long. The texts of pages around tell furniture."""
        started = time.monotonic()
        last = min(self.page_count, first + STRETCH_PAGES - 1)
        warnings: list[ParseWarning] = [] if first > 1 else self._document_warnings()
        texts = {number: self._text(number, warnings) for number in range(max(1, first - 4), last + 1)}
        heights = {number: height for number, (_, height) in texts.items()}
        main = {number: text.groups[0] if text.groups else () for number, (text, _) in texts.items()}
        repeated = furniture(main, heights)
        parses: list[PageParse] = []
        for number in range(first, last + 1):
            parses.append(self._page(number, texts[number][0], repeated.get(number, set())))
            if time.monotonic() - started > self._options.stretch_seconds:
                break
        blocks = [block for parse in parses for block in parse.blocks]
        warnings.extend(warning for parse in parses for warning in parse.warnings)
        if first == 1:
            blocks.extend(embedded_files(self._document))
        _empty_store()
        return ParsedPart(
            blocks=tuple(blocks),
            first_page=first,
            last_page=first + len(parses) - 1,
            routes=tuple(parse.route for parse in parses),
            warnings=tuple(warnings),
        )

    def _text(self, number: int, warnings: list[ParseWarning]) -> tuple[PageText, float]:
        try:
            page = self._document[number - 1]
            return page_text(page), page.rect.height
        except (RuntimeError, ValueError) as error:
            message = f"the page is damaged and was skipped ({type(error).__name__})"
            warnings.append(ParseWarning(code="DAMAGED_PAGE", message=message, page=number))
            return PageText(groups=(), rules=()), 1.0

    def _page(self, number: int, text: PageText, repeated: set[int]) -> PageParse:
        try:
            page = self._document[number - 1]
            parse = parse_page(page, number, text, repeated, self._profile, self._options)
            return parse.with_blocks(page_extras(page, number, parse.blocks))
        except (RuntimeError, ValueError) as error:
            message = f"the page is damaged and was skipped ({type(error).__name__})"
            warning = ParseWarning(code="DAMAGED_PAGE", message=message, page=number)
            return PageParse(blocks=(), route=PageRoute.EMPTY, warnings=(warning,))

    def _look_around(self) -> tuple[FontProfile, str]:
        """Font sizes and a sample of text from pages spread over the document: the same whatever stretch is read."""
        step = max(1, self.page_count // _SAMPLE_PAGES)
        sizes: list[tuple[float, int]] = []
        sample = ""
        for number in range(1, self.page_count + 1, step)[:_SAMPLE_PAGES]:
            text, _ = self._text(number, [])
            for fragment in text.groups[0] if text.groups else ():
                sizes.append((fragment.size, len(fragment.text)))
                if len(sample) < _SAMPLE_CHARS:
                    sample += fragment.text + "\n"
        return FontProfile.of(sizes), sample

    def _read_metadata(self, sample: str) -> DocumentMetadata:
        info: dict[str, str | None] = self._document.metadata or {}
        return DocumentMetadata(
            title=clean_title(info.get("title")),
            author=short(info.get("author")),
            language=detect_language(sample),
            document_type="pdf",
            tags=tags_from(info.get("keywords")),
            created_time=pdf_time(info.get("creationDate")),
            updated_time=pdf_time(info.get("modDate")),
        )

    def _document_warnings(self) -> list[ParseWarning]:
        if not self._document.is_repaired:
            return []
        return [
            ParseWarning(code="REPAIRED", message="the PDF was damaged and had to be repaired; text may be missing")
        ]


def no_text_message(part: ParsedPart) -> str:
    pages = len(part.routes)
    why = "; ".join(dict.fromkeys(w.message for w in part.warnings if w.page is not None)) or "all pages are empty"
    return f"none of the {pages} page(s) holds text: {why}"


def _empty_store() -> None:
    import pymupdf

    pymupdf.TOOLS.store_shrink(100)
