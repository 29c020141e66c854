"""Filters of the wire as filters of the domain, with everything that is wrong with one found at once."""

import math
from datetime import UTC, datetime

from pergamon.type.v1 import filter_pb2 as pb

from services.common.validation import Violations
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
from services.index.words import asked_words

MAX_DEPTH = 8
MAX_LEAVES = 128
MAX_VALUES = 1_000
MAX_TEXT_CHARS = 1_024
_TYPE_NAMES = {str: "text", bool: "true or false", datetime: "a time"}
_BOUNDS = ("gt", "gte", "lt", "lte")


class FilterReader:
    """Reads one filter. `read` returns None where something was found wrong, and `found` says what."""

    def __init__(self, found: Violations) -> None:
        self._found = found

    def read(self, message: pb.Filter, path: str) -> Filter | None:
        if not _bounded(message):
            self._found.add(path, f"has more than {MAX_LEAVES} conditions, which is the most that is allowed")
            return None
        return self._node(message, path, 1)

    def _node(self, message: pb.Filter, path: str, depth: int) -> Filter | None:
        if depth > MAX_DEPTH:
            self._found.add(path, f"is nested deeper than {MAX_DEPTH}")
            return None
        kind = message.WhichOneof("kind")
        match kind:
            case "and" | "or":
                children = self._children(getattr(message, kind), f"{path}.{kind}", depth)
                if children is None:
                    return None
                return And(filters=children) if kind == "and" else Or(filters=children)
            case "not":
                child = self._node(getattr(message, kind), f"{path}.not", depth + 1)
                return None if child is None else Not(filter=child)
            case None:
                self._found.add(path, "has no condition; set one of equals, in, range, exists, text, and, or, not")
                return None
            case _:
                return self._leaf(message, kind, f"{path}.{kind}")

    def _children(self, message: pb.FilterList, path: str, depth: int) -> tuple[Filter, ...] | None:
        if not message.filters:
            self._found.add(path, "has no filters; at least one is needed")
            return None
        read = [self._node(child, f"{path}.filters[{n}]", depth + 1) for n, child in enumerate(message.filters)]
        children = tuple(child for child in read if child is not None)
        return children if len(children) == len(read) else None

    def _leaf(self, message: pb.Filter, kind: str, path: str) -> Filter | None:
        leaf = getattr(message, kind)
        if not self._field(leaf.field, f"{path}.field"):
            return None
        match kind:
            case "equals":
                value = self._comparable(leaf.value, _kind(leaf.field), f"{path}.value")
                return None if value is None else Equals(field=leaf.field, value=value)
            case "in":
                return self._in(leaf, path)
            case "range":
                return self._range(leaf, path)
            case "exists":
                return Exists(field=leaf.field)
            case _:
                return self._text(leaf, path)

    def _in(self, leaf: pb.InFilter, path: str) -> In | None:
        if len(leaf.values) > MAX_VALUES:
            self._found.add(f"{path}.values", f"holds {len(leaf.values)} values, at most {MAX_VALUES} are allowed")
            return None
        kind = _kind(leaf.field)
        read = [self._comparable(value, kind, f"{path}.values[{n}]") for n, value in enumerate(leaf.values)]
        values = tuple(value for value in read if value is not None)
        return In(field=leaf.field, values=values) if len(values) == len(read) else None

    def _range(self, leaf: pb.RangeFilter, path: str) -> Range | None:
        kind = _kind(leaf.field)
        if kind in (str, bool):
            self._found.add(path, f"{leaf.field} has no order; a range needs a number or a time")
            return None
        names = [name for name in _BOUNDS if leaf.HasField(name)]
        if not names:
            self._found.add(path, "has no bound; set at least one of gt, gte, lt, lte")
            return None
        read = {name: self._bound(getattr(leaf, name), kind, f"{path}.{name}") for name in names}
        bounds = {name: bound for name, bound in read.items() if bound is not None}
        return Range(field=leaf.field, **bounds) if len(bounds) == len(read) else None

    def _comparable(self, message: pb.FilterValue, kind: type | None, path: str) -> Scalar | None:
        """A value of the field's own type; one of another type would match nothing, and is surely a mistake."""
        value = self._value(message, path)
        if value is None:
            return None
        if kind is None:
            fine, wanted = not isinstance(value, datetime), "text, a number or true or false: a label holds no time"
        elif kind is int:
            fine, wanted = isinstance(value, int | float) and not isinstance(value, bool), "a number"
        else:
            fine, wanted = isinstance(value, kind), _TYPE_NAMES[kind]
        if not fine:
            self._found.add(path, f"must be {wanted}")
            return None
        return value

    def _bound(self, message: pb.FilterValue, kind: type | None, path: str) -> float | datetime | None:
        value = self._value(message, path)
        if value is None:
            return None
        if kind is datetime and isinstance(value, datetime):
            return value
        if kind is not datetime and isinstance(value, int | float) and not isinstance(value, bool):
            return value
        self._found.add(path, "must be a time" if kind is datetime else "must be a number")
        return None

    def _text(self, leaf: pb.TextFilter, path: str) -> TextMatch | None:
        kind = _kind(leaf.field)
        if kind not in (str, None):
            self._found.add(f"{path}.field", f"{leaf.field} holds no text; use equals or range")
            return None
        if len(leaf.text) > MAX_TEXT_CHARS:
            self._found.add(f"{path}.text", f"has {len(leaf.text)} characters, at most {MAX_TEXT_CHARS} are allowed")
            return None
        if not asked_words(leaf.text):
            self._found.add(f"{path}.text", "has no word")
            return None
        return TextMatch(field=leaf.field, text=leaf.text)

    def _field(self, field: str, path: str) -> bool:
        known = field in DOCUMENT_FIELDS or (field.startswith(LABEL_PREFIX) and len(field) > len(LABEL_PREFIX))
        if not known:
            names = ", ".join(DOCUMENT_FIELDS)
            self._found.add(path, f"{field[:40]!r} is unknown; known are {names} and {LABEL_PREFIX}<key>")
        return known

    def _value(self, message: pb.FilterValue, path: str) -> Scalar | None:
        kind = message.WhichOneof("kind")
        if kind is None:
            self._found.add(path, "has no value")
            return None
        if kind == "time_value":
            return self._time(message, path)
        value: str | int | float | bool = getattr(message, kind)
        if isinstance(value, float) and not math.isfinite(value):
            self._found.add(path, f"is {value}; a number must be finite")
            return None
        return value

    def _time(self, message: pb.FilterValue, path: str) -> datetime | None:
        try:
            return message.time_value.ToDatetime(UTC)
        except (ValueError, OverflowError):
            self._found.add(path, "is no time between the years 1 and 9999")
            return None


def _bounded(message: pb.Filter) -> bool:
    """Whether there are few enough conditions to read: a list of many is refused before its entries cost any time."""
    conditions, open_nodes = 0, [(message, 1)]
    while open_nodes:
        node, depth = open_nodes.pop()
        kind = node.WhichOneof("kind")
        if depth > MAX_DEPTH or kind not in ("and", "or", "not"):
            conditions += 1
        elif kind == "not":
            open_nodes.append((getattr(node, kind), depth + 1))
        else:
            children = getattr(node, kind).filters
            if len(children) > MAX_LEAVES:
                return False
            open_nodes.extend((child, depth + 1) for child in children)
        if conditions > MAX_LEAVES:
            return False
    return True


def _kind(field: str) -> type | None:
    """The type of a document field; None for a label, which may hold any."""
    return DOCUMENT_FIELDS.get(field)
