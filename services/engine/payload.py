"""Payloads between the wire (json_with_int Values) and Python."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import qdrant_edge as edge
from qdrant_client import grpc as q

from services.engine.errors import invalid

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

#: Deeper payloads are refused: the conversion recurses.
MAX_DEPTH = 32


def value_to_json(value: q.Value, depth: int = 0) -> Json:  # noqa: PLR0911 - one return a kind
    """One wire value as Python data; INVALID_ARGUMENT beyond `MAX_DEPTH` levels."""
    if depth > MAX_DEPTH:
        raise invalid(f"Payload is nested deeper than {MAX_DEPTH} levels")
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "integer_value":
            return value.integer_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case "list_value":
            return [value_to_json(entry, depth + 1) for entry in value.list_value.values]
        case "struct_value":
            return {key: value_to_json(entry, depth + 1) for key, entry in value.struct_value.fields.items()}
        case _:
            return None


def payload_to_json(payload: Mapping[str, q.Value]) -> dict[str, Json]:
    return {key: value_to_json(value) for key, value in payload.items()}


def json_to_value(data: Any) -> q.Value:  # noqa: PLR0911 - one return a kind
    """Python data from the engine as a wire value."""
    match data:
        case str():
            return q.Value(string_value=data)
        case bool():
            return q.Value(bool_value=data)
        case int():
            return q.Value(integer_value=data)
        case float():
            return q.Value(double_value=data)
        case list():
            entries: list[Any] = data
            return q.Value(list_value=q.ListValue(values=[json_to_value(entry) for entry in entries]))
        case dict():
            fields: dict[str, Any] = data
            return q.Value(struct_value=q.Struct(fields={key: json_to_value(entry) for key, entry in fields.items()}))
        case _:
            return q.Value(null_value=q.NULL_VALUE)


def json_to_payload(payload: Mapping[str, Any] | None) -> dict[str, q.Value]:
    return {key: json_to_value(entry) for key, entry in payload.items()} if payload else {}


def payload_selector(request: q.WithPayloadSelector) -> edge.WithPayloadType:
    """Which payload keys to return; nothing asked for means none, as on a Qdrant server."""
    match request.WhichOneof("selector_options"):
        case "include":
            return edge.PayloadSelector.Include(list(request.include.fields))
        case "exclude":
            return edge.PayloadSelector.Exclude(list(request.exclude.fields))
        case "enable":
            return request.enable
        case _:
            return False


def vectors_selector(request: q.WithVectorsSelector) -> edge.WithVectorType:
    """Which vectors to return; nothing asked for means none."""
    match request.WhichOneof("selector_options"):
        case "include":
            return list(request.include.names)
        case "enable":
            return request.enable
        case _:
            return False
