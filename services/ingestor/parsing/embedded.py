"""Documents inside documents that are web pages or text (the parts of an altChunk)."""

import email
import email.policy

from services.domain.blocks import Block, BlockKind, DocumentMetadata
from services.ingestor.parsing.cleaning import clean
from services.ingestor.parsing.encoding import decode, looks_binary
from services.ingestor.parsing.parser import Reading


def read_embedded(data: bytes, name: str) -> Reading | None:
    """HTML, MHTML or plain text; None for anything else."""
    from services.ingestor.parsing.html import decode_html, html_reading

    if looks_binary(data) or data.lstrip()[:5] == b"{\\rtf":
        return None
    head = data[:2000].lower()
    if b"mime-version" in head:
        return _mhtml(data)
    if b"<html" in head or b"<body" in head or name.lower().endswith((".html", ".htm", ".xhtml")):
        return html_reading(decode_html(data).text)
    text = clean(decode(data).text)
    blocks = tuple(Block(kind=BlockKind.PARAGRAPH, text=part.strip()) for part in text.split("\n\n") if part.strip())
    return Reading(blocks=blocks, metadata=DocumentMetadata())


def _mhtml(data: bytes) -> Reading | None:
    from services.ingestor.parsing.html import decode_html, html_reading

    message = email.message_from_bytes(data, policy=email.policy.default)
    for part in message.walk():
        if part.get_content_type() == "text/html":
            content = part.get_payload(decode=True)
            if isinstance(content, bytes):
                return html_reading(decode_html(content, part.get_content_charset("")).text)
    return None
