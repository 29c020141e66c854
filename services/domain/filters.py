"""Typed filters over document metadata, and the scope that bounds what a caller may see.

A filter is a small tree. Leaves name a field: one of `DOCUMENT_FIELDS`, or `labels.<key>` for a label
that the tenant defined. Services build it from the wire, `services.index.filters` turns it into the
engine's own form, and nothing else interprets it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from services.domain.ids import KnowledgeBaseId, TenantId

Scalar: TypeAlias = str | int | float | bool | datetime

#: Fields every document has, with the type their values are compared as.
DOCUMENT_FIELDS: dict[str, type] = {
    "document_id": str,
    "name": str,
    "title": str,
    "author": str,
    "language": str,
    "document_type": str,
    "source_url": str,
    "tags": str,
    "authoritative": bool,
    "page_count": int,
    "created_time": datetime,
    "updated_time": datetime,
}
LABEL_PREFIX = "labels."


@dataclass(frozen=True, slots=True, kw_only=True)
class Equals:
    """The field holds exactly `value`; a list field holds it among its elements."""

    field: str
    value: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class In:
    """The field holds one of `values`. No values: nothing matches."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The field lies between the bounds given; a bound that is None is open. Numbers and times only."""

    field: str
    gt: float | datetime | None = None
    gte: float | datetime | None = None
    lt: float | datetime | None = None
    lte: float | datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exists:
    """The field is present and not empty."""

    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMatch:
    """Every word of `text` occurs in the field, without regard to case or order."""

    field: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    filters: tuple["Filter", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    filters: tuple["Filter", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    filter: "Filter"


Filter: TypeAlias = Equals | In | Range | Exists | TextMatch | And | Or | Not


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What one call may see: a tenant, some of its knowledge bases, and the documents that every filter lets through.

    `filters` holds the credential's own filter and the request's, always combined with AND: a request
    can narrow what its credential sees and never widen it.
    """

    tenant_id: TenantId
    knowledge_base_ids: tuple[KnowledgeBaseId, ...]
    filters: tuple[Filter, ...] = ()


def fields_of(node: Filter) -> Iterator[str]:
    """The field names that occur in `node`, in order, repeats included."""
    match node:
        case And(filters=children) | Or(filters=children):
            for child in children:
                yield from fields_of(child)
        case Not(filter=child):
            yield from fields_of(child)
        case Equals() | In() | Range() | Exists() | TextMatch():
            yield node.field
