"""Filters between the wire and qdrant-edge."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

import qdrant_edge as edge
from google.protobuf.timestamp_pb2 import Timestamp
from qdrant_client import grpc as q

from services.engine.errors import invalid, unsupported

#: Deeper filters are refused: the conversion recurses.
MAX_DEPTH = 32


def to_point_id(point_id: q.PointId) -> int | str:
    """A point id as qdrant-edge takes it: a number, or the text of a UUID."""
    match point_id.WhichOneof("point_id_options"):
        case "num":
            return point_id.num
        case "uuid":
            return point_id.uuid
        case _:
            raise invalid("Point id is empty: give `num` or `uuid`")


def to_filter(request: q.Filter, depth: int = 0) -> edge.Filter:
    """A wire filter as the engine's own; INVALID_ARGUMENT when malformed, UNIMPLEMENTED for what edge cannot do."""
    if depth > MAX_DEPTH:
        raise invalid(f"Filter is nested deeper than {MAX_DEPTH} levels")
    min_should = None
    if request.HasField("min_should"):
        conditions = _conditions(request.min_should.conditions, depth) or []
        min_should = edge.MinShould(conditions, request.min_should.min_count)
    return edge.Filter(
        must=_conditions(request.must, depth),
        should=_conditions(request.should, depth),
        must_not=_conditions(request.must_not, depth),
        min_should=min_should,
    )


def _conditions(conditions: Iterable[q.Condition], depth: int) -> list[edge.ConditionType] | None:
    return [_condition(condition, depth) for condition in conditions] or None


def _condition(condition: q.Condition, depth: int) -> edge.ConditionType:  # noqa: PLR0911 - one return a kind
    match condition.WhichOneof("condition_one_of"):
        case "field":
            return _field_condition(condition.field)
        case "is_empty":
            return edge.IsEmptyCondition(condition.is_empty.key)
        case "is_null":
            return edge.IsNullCondition(condition.is_null.key)
        case "has_id":
            return edge.HasIdCondition({to_point_id(point_id) for point_id in condition.has_id.has_id})
        case "filter":
            return to_filter(condition.filter, depth + 1)
        case "nested":
            return edge.NestedCondition(condition.nested.key, to_filter(condition.nested.filter, depth + 1))
        case "has_vector":
            return edge.HasVectorCondition(condition.has_vector.has_vector)
        case other:
            raise unsupported(f"Condition `{other}`") if other else invalid("Condition is empty")


def _field_condition(condition: q.FieldCondition) -> edge.FieldCondition:
    key = condition.key
    if condition.HasField("match"):
        return edge.FieldCondition(key, match=_match(condition.match))
    if condition.HasField("range"):
        return edge.FieldCondition(key, range=_number_range(condition.range))
    if condition.HasField("datetime_range"):
        return edge.FieldCondition(key, range=_time_range(condition.datetime_range))
    if condition.HasField("values_count"):
        bounds = condition.values_count
        counts = {name: getattr(bounds, name) for name in ("lt", "gt", "lte", "gte") if bounds.HasField(name)}
        return edge.FieldCondition(key, values_count=edge.ValuesCount(**counts))
    if condition.HasField("is_empty"):
        return edge.FieldCondition(key, is_empty=condition.is_empty)
    if condition.HasField("is_null"):
        return edge.FieldCondition(key, is_null=condition.is_null)
    raise unsupported(f"The condition on `{key}`")


def _match(match: q.Match) -> edge.MatchType:  # noqa: PLR0911, PLR0912 - one return a kind
    kind = match.WhichOneof("match_value")
    match kind:
        case "keyword":
            return edge.MatchValue(match.keyword)
        case "integer":
            return edge.MatchValue(match.integer)
        case "keywords":
            return edge.MatchAny(list(match.keywords.strings))
        case "integers":
            return edge.MatchAny(list(match.integers.integers))
        case "except_keywords":
            return edge.MatchExcept(list(match.except_keywords.strings))
        case "except_integers":
            return edge.MatchExcept(list(match.except_integers.integers))
        case "text":
            return edge.MatchText(match.text)
        case "text_any":
            return edge.MatchTextAny(match.text_any)
        case "phrase":
            return edge.MatchPhrase(match.phrase)
        case "prefix":
            return edge.MatchPrefix(match.prefix)
        case "substring":
            return edge.MatchSubstring(match.substring)
        case "boolean":
            # qdrant-edge 0.9 reads a Python bool as the integer 0 or 1: the match would find nothing. Say so instead.
            raise unsupported("A match on a boolean (store 0 or 1 and match the integer)")
        case _:
            raise invalid("Match is empty")


def _number_range(bounds: q.Range) -> edge.RangeFloat:
    return edge.RangeFloat(
        gte=bounds.gte if bounds.HasField("gte") else None,
        gt=bounds.gt if bounds.HasField("gt") else None,
        lte=bounds.lte if bounds.HasField("lte") else None,
        lt=bounds.lt if bounds.HasField("lt") else None,
    )


def _time_range(bounds: q.DatetimeRange) -> edge.RangeDateTime:
    return edge.RangeDateTime(
        gte=_time(bounds.gte) if bounds.HasField("gte") else None,
        gt=_time(bounds.gt) if bounds.HasField("gt") else None,
        lte=_time(bounds.lte) if bounds.HasField("lte") else None,
        lt=_time(bounds.lt) if bounds.HasField("lt") else None,
    )


def _time(timestamp: Timestamp) -> str:
    try:
        return timestamp.ToDatetime(tzinfo=UTC).isoformat()
    except (ValueError, OverflowError) as error:
        raise invalid(f"Timestamp {timestamp.seconds} s is outside the years 1 to 9999") from error
