# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false
"""Summary information of OLE documents (DOC, XLS)."""

from datetime import UTC, datetime
from pathlib import Path

import olefile

from services.domain.blocks import DocumentMetadata
from services.ingestor.parsing.encoding import decode
from services.ingestor.parsing.metadata import clean_title, short, tags_from


def ole_metadata(path: Path) -> DocumentMetadata:
    """What the property stream says; nothing when it is absent or damaged."""
    try:
        with olefile.OleFileIO(str(path)) as container:
            found = container.get_metadata()
    except Exception:
        return DocumentMetadata()  # a property stream is no reason to refuse a document
    codepage = found.codepage if isinstance(found.codepage, int) else 1252
    encoding = "utf-8" if codepage == 65001 else f"cp{codepage % 65536}" if codepage else "cp1252"
    return DocumentMetadata(
        title=clean_title(_text(found.title, encoding)),
        author=short(_text(found.author, encoding)),
        tags=tags_from(_text(found.keywords, encoding)),
        created_time=_time(found.create_time),
        updated_time=_time(found.last_saved_time),
    )


def _text(value: object, encoding: str) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode(encoding).rstrip("\x00")
        except (LookupError, UnicodeDecodeError):
            return decode(value).text.rstrip("\x00")
    return value if isinstance(value, str) else ""


def _time(value: object) -> datetime | None:
    if isinstance(value, datetime) and 1980 <= value.year <= 2200:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return None
