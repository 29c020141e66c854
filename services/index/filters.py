"""Filters of the domain as filters of Qdrant, with exactly the meaning that `services.domain.filters` states.

Values compare by type: text with text, numbers with numbers by value, truth values and times among themselves. A value
of another type than the field's matches nothing. What a field cannot do at all (a range over text, words of a number, a
field that does not exist) is INVALID_FILTER.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import assert_never

from google.protobuf.timestamp_pb2 import Timestamp
from qdrant_client import grpc as q

from services.common.errors import InvalidRequest, Reason
from services.domain.filters import (
    DOCUMENT_FIELDS,
    LABEL_PREFIX,
    And,
    Equals,
    Exists,
    Filter,
    In,
    Not,
    Or,
    Range,
    Scalar,
    TextMatch,
)
from services.domain.ids import DocVersionId, IndexVersionId, KnowledgeBaseId
from services.index.payload import SCOPE_KEY, TEXT_FIELDS, label_key, label_term, scope_term
from services.index.words import asked_words

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def corpus_filter(kb_id: KnowledgeBaseId, index_version: IndexVersionId | None = None) -> q.Filter:
    """One knowledge base, and one of its index versions if given. InvalidRequest for an empty id."""
    if not kb_id:
        raise InvalidRequest("the knowledge base id is empty: every access to the index names one")
    if index_version is None:
        return q.Filter(must=[_keyword("kb_id", kb_id)])
    return q.Filter(must=[_keyword(SCOPE_KEY, scope_term(kb_id, index_version))])


def search_filter(
    kb_id: KnowledgeBaseId,
    index_version: IndexVersionId,
    hidden: Sequence[DocVersionId],
    filters: Sequence[Filter],
) -> q.Filter:
    """The whole bound of a search: knowledge base, index version, none of the hidden versions, every filter."""
    whole = corpus_filter(kb_id, index_version)
    whole.must.extend(to_condition(node) for node in filters)
    if hidden:
        whole.must_not.append(doc_versions_condition(hidden))
    return whole


def doc_versions_condition(doc_versions: Iterable[DocVersionId]) -> q.Condition:
    integers = q.RepeatedIntegers(integers=list(doc_versions))
    return q.Condition(field=q.FieldCondition(key="doc_version", match=q.Match(integers=integers)))


def to_condition(node: Filter) -> q.Condition:  # noqa: PLR0911 - one return a kind
    """A filter of the domain as one condition of Qdrant."""
    match node:
        case Equals():
            return _holds(node.field, (node.value,))
        case In():
            return _holds(node.field, node.values)
        case Range():
            return _lies_between(node)
        case Exists():
            return _exists(node.field)
        case TextMatch():
            return _has_words(node)
        case And():
            return q.Condition(filter=q.Filter(must=[to_condition(child) for child in node.filters]))
        case Or():
            return _any_of([to_condition(child) for child in node.filters])
        case Not():
            return q.Condition(filter=q.Filter(must_not=[to_condition(node.filter)]))
        case _:
            assert_never(node)


def _holds(field: str, values: Sequence[Scalar]) -> q.Condition:
    if label := _label_of(field):
        terms = [label_term(label, v) for v in values if not isinstance(v, datetime) and _is_finite(v)]
        return _one_of_keywords("label_terms", terms)
    kind, key = _document_field(field)
    if kind is str:
        return _one_of_keywords(key, [value for value in values if isinstance(value, str)])
    if kind is bool:
        return _one_of_integers(key, [int(value) for value in values if isinstance(value, bool)])
    if kind is int:
        return _one_of_integers(key, [number for value in values if (number := _whole_number(value)) is not None])
    moments = [value for value in values if isinstance(value, datetime)]
    return _any_of([_time_range(key, gte=moment, lte=moment) for moment in moments])


def _lies_between(node: Range) -> q.Condition:
    bounds = {name: getattr(node, name) for name in ("gt", "gte", "lt", "lte") if getattr(node, name) is not None}
    times = [isinstance(bound, datetime) for bound in bounds.values()]
    kind, key = (
        (float, f"label_numbers.{label_key(label)}")
        if (label := _label_of(node.field))
        else _document_field(node.field)
    )
    if kind not in (int, float, datetime):
        raise _invalid(node.field, "has no order: a range needs a number or a time")
    if not bounds:
        return _negated(_is_empty(key))
    if kind is datetime:
        if not all(times):
            raise _invalid(node.field, "is a time: its bounds must be times")
        return _time_range(key, **bounds)
    if any(times) or any(isinstance(bound, bool) for bound in bounds.values()):
        raise _invalid(node.field, "is a number: its bounds must be numbers")
    if any(math.isnan(bound) for bound in bounds.values()):
        return _nothing()
    return q.Condition(field=q.FieldCondition(key=key, range=q.Range(**{name: float(b) for name, b in bounds.items()})))


def _exists(field: str) -> q.Condition:
    if label := _label_of(field):
        return _keyword("label_terms", label_key(label))
    return _negated(_is_empty(_document_field(field)[1]))


def _has_words(node: TextMatch) -> q.Condition:
    words = asked_words(node.text)
    if not words:
        raise _invalid(node.field, f"cannot be matched with {node.text[:80]!r}: the text has no word")
    if label := _label_of(node.field):
        conditions = [_keyword("label_terms", f"{label_key(label)}~{word}") for word in words]
    elif node.field in TEXT_FIELDS:
        conditions = [_keyword(f"words.{node.field}", word) for word in words]
    else:
        _document_field(node.field)
        raise _invalid(node.field, f"has no words; those that have are {', '.join(TEXT_FIELDS)} and text labels")
    return q.Condition(filter=q.Filter(must=conditions))


def _label_of(field: str) -> str:
    return field[len(LABEL_PREFIX) :] if field.startswith(LABEL_PREFIX) else ""


def _document_field(field: str) -> tuple[type, str]:
    kind = DOCUMENT_FIELDS.get(field)
    if kind is None:
        raise _invalid(field, f"is unknown; known are {', '.join(DOCUMENT_FIELDS)} and {LABEL_PREFIX}<key>")
    return kind, field if field == "document_id" else f"meta.{field}"


def _invalid(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"filter field {field[:80]!r} {problem}", reason=Reason.INVALID_FILTER)


def _is_finite(value: Scalar) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _whole_number(value: Scalar) -> int | None:
    """The 64-bit integer that equals `value`, None where there is none: other integers are in no field."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        return None
    whole = int(value)
    return whole if whole == value and _INT64_MIN <= whole <= _INT64_MAX else None


def _keyword(key: str, value: str) -> q.Condition:
    return q.Condition(field=q.FieldCondition(key=key, match=q.Match(keyword=value)))


def _one_of_keywords(key: str, values: Sequence[str]) -> q.Condition:
    if not values:
        return _nothing()
    return q.Condition(field=q.FieldCondition(key=key, match=q.Match(keywords=q.RepeatedStrings(strings=values))))


def _one_of_integers(key: str, values: Sequence[int]) -> q.Condition:
    if not values:
        return _nothing()
    return q.Condition(field=q.FieldCondition(key=key, match=q.Match(integers=q.RepeatedIntegers(integers=values))))


def _is_empty(key: str) -> q.Condition:
    return q.Condition(is_empty=q.IsEmptyCondition(key=key))


def _negated(condition: q.Condition) -> q.Condition:
    return q.Condition(filter=q.Filter(must_not=[condition]))


def _any_of(conditions: Sequence[q.Condition]) -> q.Condition:
    """Qdrant reads an empty `should` as no condition at all; an `or` over nothing is false."""
    return q.Condition(filter=q.Filter(should=conditions)) if conditions else _nothing()


def _nothing() -> q.Condition:
    return q.Condition(has_id=q.HasIdCondition())


def _time_range(key: str, **bounds: datetime) -> q.Condition:
    stamps = {name: _timestamp(moment) for name, moment in bounds.items()}
    return q.Condition(field=q.FieldCondition(key=key, datetime_range=q.DatetimeRange(**stamps)))


def _timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return stamp
