# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false
"""Web pages: the main content where it can be told from the boilerplate, the whole body otherwise."""

import re
from pathlib import Path
from typing import Any

import lxml.html

from services.common.errors import DocumentError, Reason
from services.domain.blocks import Block, DocumentMetadata, ParseWarning
from services.ingestor.parsing.encoding import Decoded, decode
from services.ingestor.parsing.html_blocks import tree_blocks
from services.ingestor.parsing.html_main import without_boilerplate
from services.ingestor.parsing.metadata import clean_title, iso_time, short, tags_from
from services.ingestor.parsing.parser import ParseOptions, Reading

_CHARSET = re.compile(
    rb"""<meta[^>]+?charset\s*=\s*["']?\s*([\w:.-]+)|<\?xml[^>]*encoding\s*=\s*["']([\w:.-]+)""", re.I
)
_MAX_BYTES = 64 << 20


def read_html(path: Path, options: ParseOptions) -> Reading:
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise DocumentError(f"the web page has {size} bytes; the limit is {_MAX_BYTES}", reason=Reason.DOCUMENT_LIMIT)
    decoded = decode_html(path.read_bytes(), options.declared_encoding)
    warnings: tuple[ParseWarning, ...] = ()
    if decoded.guessed:
        message = f"the encoding was guessed to be {decoded.encoding}"
        warnings = (ParseWarning(code="GUESSED_ENCODING", message=message),)
    return html_reading(decoded.text, warnings)


def html_reading(text: str, warnings: tuple[ParseWarning, ...] = ()) -> Reading:
    """Blocks and metadata of the text of a page."""
    root = parse_html(text)
    if root is None:
        return Reading(blocks=(), metadata=DocumentMetadata(), warnings=warnings)
    metadata = _metadata(root)
    return Reading(blocks=tuple(_content(root)), metadata=metadata, warnings=warnings)


def parse_html(text: str) -> Any | None:
    """The tree of a page; None for one without content. An encoding declared inside is ignored: the text is decoded."""
    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", text.replace("\x00", ""))
    if not text.strip():
        return None
    parser = lxml.html.HTMLParser(encoding="utf-8", huge_tree=False, remove_comments=True, remove_pis=True)
    try:
        return lxml.html.document_fromstring(text.encode("utf-8", "replace"), parser=parser)
    except lxml.etree.ParserError:
        return None


def _content(root: Any) -> list[Block]:
    body = root.find("body")
    whole = tree_blocks(body if body is not None else root)
    main = without_boilerplate(root)
    return main if main is not None else whole


def decode_html(data: bytes, declared: str = "") -> Decoded:
    match = _CHARSET.search(data[:4096])
    inside = (match[1] or match[2]).decode("ascii", "replace") if match else ""
    return decode(data, declared or inside)


def _metadata(root: Any) -> DocumentMetadata:
    values: dict[str, str] = {}
    for meta in root.iter("meta"):
        name = (meta.get("name") or meta.get("property") or meta.get("itemprop") or "").lower()
        if name and meta.get("content"):
            values.setdefault(name, meta.get("content"))
    titles = [element.text_content() for element in root.iter("title")]
    canonical = next((link.get("href") for link in root.iter("link") if link.get("rel") == "canonical"), None)
    url = canonical or values.get("og:url") or ""
    created = (
        values.get("article:published_time")
        or values.get("datepublished")
        or values.get("dc.date")
        or values.get("date")
    )
    updated = values.get("article:modified_time") or values.get("datemodified") or values.get("og:updated_time")
    return DocumentMetadata(
        title=clean_title((titles[0] if titles else "") or values.get("og:title")),
        author=short(values.get("author") or values.get("article:author") or values.get("dc.creator")),
        language=_language(root.get("lang") or root.get("{http://www.w3.org/XML/1998/namespace}lang")),
        source_url=url if url.startswith(("http://", "https://")) else "",
        tags=tags_from(values.get("keywords")),
        created_time=iso_time(created),
        updated_time=iso_time(updated or values.get("last-modified")),
    )


def _language(value: str | None) -> str:
    match = re.match(r"\s*([A-Za-z]{2})(?:[-_]|\s*$)", value or "")
    return match[1].lower() if match else ""
