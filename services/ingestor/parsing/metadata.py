"""Metadata of a document: what the file says, what the caller says, and which of them wins."""

import re
from dataclasses import replace
from datetime import UTC, datetime

from services.domain.blocks import DocumentMetadata
from services.ingestor.parsing.cleaning import one_line

_MAX_CHARS = 500
_PDF_DATE = re.compile(r"D?:?(\d{4})(\d{2})?(\d{2})?(\d{2})?(\d{2})?(\d{2})?([+\-Zz])?(\d{2})?'?(\d{2})?")
_PLACEHOLDERS = frozenset({"untitled", "title", "document", "no title", "none", "unknown"})


def merge_metadata(*, extracted: DocumentMetadata, given: DocumentMetadata) -> DocumentMetadata:
    """The caller's fields where the caller said something, the file's otherwise; labels and tags are joined."""
    return replace(
        given,
        title=given.title or extracted.title,
        author=given.author or extracted.author,
        language=given.language or extracted.language,
        document_type=given.document_type or extracted.document_type,
        source_url=given.source_url or extracted.source_url,
        tags=given.tags or extracted.tags,
        authoritative=given.authoritative or extracted.authoritative,
        created_time=given.created_time or extracted.created_time,
        updated_time=given.updated_time or extracted.updated_time,
        labels={**extracted.labels, **given.labels},
    )


def clean_title(value: str | None) -> str:
    """A title worth showing: one line, without the file name that word processors put there."""
    text = short(value)
    bare = re.sub(r"^(Microsoft (Office )?Word|Microsoft (Office )?Excel|Microsoft PowerPoint)\s*-\s*", "", text)
    if bare.lower() in _PLACEHOLDERS or re.fullmatch(
        r"\S+\.(docx?|pdf|xlsx?|indd|qxd|tex|dvi|rtf|html?|pptx?)", bare, re.I
    ):
        return ""
    return bare


def short(value: str | None) -> str:
    return one_line(value or "")[:_MAX_CHARS]


def tags_from(value: str | None) -> tuple[str, ...]:
    """Keywords separated by commas or semicolons, each once."""
    words = (one_line(word) for word in re.split(r"[,;，；\n]", value or ""))
    return tuple(dict.fromkeys(word[:100] for word in words if word))[:32]


def iso_time(value: str | None) -> datetime | None:
    """An ISO 8601 (W3CDTF) time, taken as UTC when it has no zone; None when it is not one."""
    try:
        moment = datetime.fromisoformat((value or "").strip())
    except ValueError:
        return None
    return _sane(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def pdf_time(value: str | None) -> datetime | None:
    """A PDF date (ISO 32000-1, 7.9.4); None when it is not one."""
    match = _PDF_DATE.match((value or "").strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (
        int(g) if g else d for g, d in zip(match.groups()[:6], (0, 1, 1, 0, 0, 0), strict=True)
    )
    sign, zone_hours, zone_minutes = match.group(7), match.group(8), match.group(9)
    zone = f"{sign}{zone_hours}:{zone_minutes or '00'}" if sign in ("+", "-") and zone_hours else "+00:00"
    return iso_time(f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{zone}")


def _sane(moment: datetime) -> datetime | None:
    try:
        utc = moment.astimezone(UTC)
    except (OverflowError, ValueError):
        return None
    return utc if 1970 <= utc.year <= 2200 else None
