"""Opening a document: its kind from the content, then the parser of that kind."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TypeAlias, cast

from services.common.errors import DocumentError, Reason
from services.domain.blocks import DocumentKind, DocumentMetadata, ParsedPart
from services.ingestor.parsing.language import detect_language
from services.ingestor.parsing.parser import ParsedSource, ParseOptions, Parser, Reading
from services.ingestor.parsing.sniff import sniff
from services.ingestor.parsing.unlocking import as_document_errors, readable

Reader: TypeAlias = Callable[[Path, ParseOptions], Reading]

#: Formats with pages have a parser, the others a reader of the whole document: module below this package, and name.
_PARSERS = {DocumentKind.PDF: ("pdf", "PdfParser"), DocumentKind.IMAGE: ("image", "ImageParser")}
_READERS = {
    DocumentKind.DOCX: ("docx", "read_docx"),
    DocumentKind.DOC: ("doc", "read_doc"),
    DocumentKind.XLSX: ("sheets", "read_xlsx"),
    DocumentKind.XLS: ("sheets", "read_xls"),
    DocumentKind.CSV: ("csv_table", "read_csv"),
    DocumentKind.MARKDOWN: ("markdown", "read_markdown"),
    DocumentKind.HTML: ("html", "read_html"),
    DocumentKind.TEXT: ("plain", "read_text"),
    DocumentKind.CODE: ("plain", "read_code"),
}
_SAMPLE_CHARS = 4000


def open_source(path: Path, options: ParseOptions) -> ParsedSource:
    """The document at `path`, ready to be read.

    Raises DocumentError: EMPTY_FILE, UNSUPPORTED_FORMAT, PASSWORD_REQUIRED, UNREADABLE_DOCUMENT, DOCUMENT_LIMIT.
    """
    with as_document_errors(), readable(path, options) as file:
        kind = sniff(file, options)
        found = _PARSERS.get(kind)
        if found is not None:
            module, name = found
            return cast(Parser, getattr(import_module(f"{__package__}.{module}"), name)()).open(file, options)
        module, name = _READERS[kind]
        reader = cast(Reader, getattr(import_module(f"{__package__}.{module}"), name))
        return WholeSource(kind, reader(file, options), options)


class WholeSource:
    """A document without pages: one part, read when it was opened."""

    page_count = 0

    def __init__(self, kind: DocumentKind, reading: Reading, options: ParseOptions) -> None:
        self.kind = reading.kind or kind
        self._reading = reading
        self.metadata = self._complete(reading)
        if sum(len(block.text) for block in reading.blocks) > options.max_text_chars:
            raise DocumentError(
                f"the document holds more than {options.max_text_chars} characters, the limit",
                reason=Reason.DOCUMENT_LIMIT,
            )

    def parts(self, first_page: int = 1) -> Iterator[ParsedPart]:
        del first_page  # there is one part, whatever page is asked for
        if not any(block.text.strip() for block in self._reading.blocks):
            why = "; ".join(warning.message for warning in self._reading.warnings[:3])
            raise DocumentError(f"the document holds no text{': ' if why else ''}{why}", reason=Reason.NO_TEXT)
        yield ParsedPart(blocks=self._reading.blocks, warnings=self._reading.warnings)

    def close(self) -> None:
        """Nothing is open."""

    def _complete(self, reading: Reading) -> DocumentMetadata:
        metadata = reading.metadata
        if not metadata.language:
            metadata = replace(metadata, language=detect_language(_sample(reading)))
        return replace(metadata, document_type=metadata.document_type or self.kind.value.lower())


def _sample(reading: Reading) -> str:
    picked: list[str] = []
    length = 0
    for block in reading.blocks:
        if length >= _SAMPLE_CHARS:
            break
        picked.append(block.text[: _SAMPLE_CHARS - length])
        length += len(picked[-1])
    return "\n".join(picked)
