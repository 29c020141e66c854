"""Plain text and program code."""

import re
from pathlib import Path

from services.common.errors import DocumentError, Reason
from services.domain.blocks import Block, BlockKind, DocumentMetadata, ParseWarning
from services.ingestor.parsing.cleaning import clean
from services.ingestor.parsing.encoding import Decoded, decode
from services.ingestor.parsing.parser import ParseOptions, Reading
from services.ingestor.parsing.text_kinds import code_language

_BULLET = re.compile(r"\s*(?:[-*+•‣◦▪–]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s+\S")


def read_text(path: Path, options: ParseOptions) -> Reading:
    """Paragraphs are what stands between empty lines; a paragraph of bullets is a list."""
    decoded, warnings = load(path, options)
    return Reading(blocks=text_blocks(clean(decoded.text)), metadata=DocumentMetadata(), warnings=warnings)


def text_blocks(text: str) -> tuple[Block, ...]:
    """Paragraphs and lists of a cleaned text."""
    return tuple(_block(part) for part in re.split(r"\n[^\S\n]*\n\s*?(?=[^\n])", text) if part.strip())


def read_code(path: Path, options: ParseOptions) -> Reading:
    """One CODE block: the chunker cuts it by functions and classes."""
    decoded, warnings = load(path, options)
    text = clean(decoded.text).rstrip()
    language = code_language(text, options.filename)
    blocks = (Block(kind=BlockKind.CODE, text=text, code_language=language),) if text.strip() else ()
    return Reading(blocks=blocks, metadata=DocumentMetadata(), warnings=warnings)


def load(path: Path, options: ParseOptions) -> tuple[Decoded, tuple[ParseWarning, ...]]:
    """The text of a file, and a warning when its encoding is a guess. Raises DOCUMENT_LIMIT for too large a file."""
    size = path.stat().st_size
    if size > 4 * options.max_text_chars:
        raise DocumentError(
            f"the text file has {size} bytes; the limit is {4 * options.max_text_chars}", reason=Reason.DOCUMENT_LIMIT
        )
    decoded = decode(path.read_bytes(), options.declared_encoding)
    warnings: list[ParseWarning] = []
    if decoded.guessed:
        warnings.append(
            ParseWarning(code="GUESSED_ENCODING", message=f"the encoding was guessed to be {decoded.encoding}")
        )
    bad = decoded.text.count("\ufffd")
    if bad:
        message = f"{bad} characters could not be decoded as {decoded.encoding}"
        warnings.append(ParseWarning(code="UNDECODABLE_TEXT", message=message))
    return decoded, tuple(warnings)


def _block(part: str) -> Block:
    text = part.strip("\n").rstrip()
    lines = text.split("\n")
    bullets = sum(1 for line in lines if _BULLET.match(line))
    is_list = len(lines) > 1 and bullets >= max(2, len(lines) // 2)
    return Block(kind=BlockKind.LIST if is_list else BlockKind.PARAGRAPH, text=text)
