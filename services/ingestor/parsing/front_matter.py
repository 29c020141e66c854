"""YAML-like front matter of Markdown files: the few fields that we understand, read without a YAML parser."""

import re

from services.domain.blocks import DocumentMetadata
from services.ingestor.parsing.metadata import clean_title, iso_time, short

_FRONT = re.compile(
    r"\A(?:---[ \t]*\n(?P<yaml>.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)|\+\+\+[ \t]*\n(?P<toml>.*?)\n\+\+\+[ \t]*(?:\n|\Z))",
    re.S,
)
_FIELD = re.compile(r"^([A-Za-z_][\w -]*?)[ \t]*[:=][ \t]*(.*)$")
_ITEM = re.compile(r"^[ \t]*-[ \t]+(.*)$")
_MAX_CHARS = 20_000


def split_front_matter(text: str) -> tuple[DocumentMetadata, str]:
    """Metadata and the text after it. A text that merely begins with a rule is left alone."""
    match = _FRONT.match(text)
    source = (match["yaml"] or match["toml"] or "") if match else ""
    fields = _fields(source) if len(source) <= _MAX_CHARS else {}
    if match is None or not fields:
        return DocumentMetadata(), text
    return _metadata(fields), text[match.end() :]


def _fields(source: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in source.split("\n"):
        item, field = _ITEM.match(line), _FIELD.match(line)
        if field and not item:
            current = found.setdefault(field[1].strip().lower(), [])
            current.extend(_values(field[2]))
        elif item and current is not None:
            current.append(_unquoted(item[1]))
    return found


def _values(value: str) -> list[str]:
    value = value.strip()
    if value.startswith("[") and value.endswith("]"):
        return [_unquoted(part) for part in value[1:-1].split(",") if part.strip()]
    return [_unquoted(value)] if value else []


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def _metadata(fields: dict[str, list[str]]) -> DocumentMetadata:
    def first(*names: str) -> str:
        return next((fields[name][0] for name in names if fields.get(name)), "")

    authors = fields.get("author") or fields.get("authors") or []
    tags = [*fields.get("tags", []), *fields.get("keywords", []), *fields.get("categories", [])]
    return DocumentMetadata(
        title=clean_title(first("title")),
        author=short(", ".join(authors)),
        language=short(first("lang", "language"))[:2].lower(),
        source_url=first("url", "source_url") if first("url", "source_url").startswith("http") else "",
        tags=tuple(dict.fromkeys(short(tag) for tag in tags if tag))[:32],
        created_time=iso_time(first("date", "created")),
        updated_time=iso_time(first("updated", "lastmod", "last_modified", "modified")),
    )
