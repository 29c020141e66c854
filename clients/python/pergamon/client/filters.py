"""Builds conditions on the metadata of documents from plain Python values.

>>> from datetime import UTC, datetime
>>> recent = between("updated_time", gte=datetime(2026, 1, 1, tzinfo=UTC))
>>> manuals = is_in("document_type", ["manual", "faq"])
>>> condition = all_of(manuals, recent, negate(equals("labels.archived", True)))
>>> condition.WhichOneof("kind")
'and'

Fields are document_id, name, title, author, language, document_type, source_url, tags, authoritative, page_count,
created_time, updated_time, and `labels.<key>` for your own labels.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import cast

from google.protobuf.timestamp_pb2 import Timestamp

from pergamon.type.v1 import filter_pb2 as pb

#: What a field can be compared with.
Value = str | int | float | bool | datetime


def equals(field: str, value: Value) -> pb.Filter:
    """The field holds exactly this value; a list field (tags) holds it among its elements."""
    return pb.Filter(equals=pb.EqualsFilter(field=field, value=_value(value)))


def is_in(field: str, values: Iterable[Value]) -> pb.Filter:
    """The field holds one of at most 1,000 values; with no values nothing matches."""
    if isinstance(values, str):
        raise TypeError("values is one string; pass a list of values")
    condition = pb.Filter()
    # `in`, `and`, `or` and `not` are keywords of Python, so that these fields are reached by name.
    cast(pb.InFilter, getattr(condition, "in")).CopyFrom(pb.InFilter(field=field, values=[_value(v) for v in values]))
    return condition


def between(
    field: str,
    *,
    gt: float | datetime | None = None,
    gte: float | datetime | None = None,
    lt: float | datetime | None = None,
    lte: float | datetime | None = None,
) -> pb.Filter:
    """The field (a number or a time) lies between the bounds that are given; at least one."""
    bounds = {name: bound for name, bound in (("gt", gt), ("gte", gte), ("lt", lt), ("lte", lte)) if bound is not None}
    if not bounds:
        raise ValueError("between needs at least one of gt, gte, lt, lte")
    return pb.Filter(range=pb.RangeFilter(field=field, **{name: _value(bound) for name, bound in bounds.items()}))


def exists(field: str) -> pb.Filter:
    """The field is present and not empty."""
    return pb.Filter(exists=pb.ExistsFilter(field=field))


def text(field: str, text: str) -> pb.Filter:
    """Every word of `text` occurs in the field, without regard to case or order."""
    return pb.Filter(text=pb.TextFilter(field=field, text=text))


def all_of(*filters: pb.Filter) -> pb.Filter:
    """All of the conditions hold; at least one."""
    return _joined("and", filters)


def any_of(*filters: pb.Filter) -> pb.Filter:
    """At least one of the conditions holds; at least one."""
    return _joined("or", filters)


def negate(filter: pb.Filter) -> pb.Filter:
    """The condition does not hold."""
    condition = pb.Filter()
    cast(pb.Filter, getattr(condition, "not")).CopyFrom(filter)
    return condition


def _joined(kind: str, filters: tuple[pb.Filter, ...]) -> pb.Filter:
    if not filters:
        raise ValueError("pass at least one filter")
    condition = pb.Filter()
    cast(pb.FilterList, getattr(condition, kind)).CopyFrom(pb.FilterList(filters=filters))
    return condition


def _value(value: Value) -> pb.FilterValue:
    match value:
        case bool():  # before int: True is an int
            return pb.FilterValue(bool_value=value)
        case int():
            return pb.FilterValue(int_value=value)
        case float():
            return pb.FilterValue(double_value=value)
        case str():
            return pb.FilterValue(string_value=value)
        case datetime():
            return pb.FilterValue(time_value=timestamp(value))
    raise TypeError(f"a filter cannot compare with {type(value).__name__}; use str, int, float, bool or datetime")


def timestamp(moment: datetime) -> Timestamp:
    """The point in time. Raises ValueError for a datetime without a time zone, which names none."""
    if moment.utcoffset() is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; pass an aware datetime, as datetime.now(UTC)")
    result = Timestamp()
    result.FromDatetime(moment)
    return result
