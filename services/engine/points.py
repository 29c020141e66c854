"""Points between the wire and qdrant-edge: what is written, and what is returned."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from uuid import UUID

import qdrant_edge as edge
from qdrant_client import grpc as q

from services.engine.errors import invalid, unsupported
from services.engine.filters import to_point_id
from services.engine.payload import json_to_payload, json_to_value, payload_to_json
from services.engine.queries import finite, sparse_vector
from services.engine.schema import CollectionConfig

Named: TypeAlias = "dict[str, edge.NamedVector]"


def to_point(point: q.PointStruct, config: CollectionConfig) -> edge.Point:
    """A point to write; INVALID_ARGUMENT for an id or a vector that does not fit the collection."""
    vectors = to_vectors(point.vectors, config) if point.HasField("vectors") else {}
    return edge.Point(_checked_id(point.id), vectors, payload_to_json(point.payload))


def to_point_vectors(point: q.PointVectors, config: CollectionConfig) -> edge.PointVectors:
    return edge.PointVectors(_checked_id(point.id), to_vectors(point.vectors, config))


def _checked_id(point_id: q.PointId) -> int | str:
    value = to_point_id(point_id)
    if isinstance(value, str):
        try:
            UUID(value)
        except ValueError as error:
            raise invalid(f"Unable to parse UUID: {value[:64]}") from error
    return value


def to_vectors(vectors: q.Vectors, config: CollectionConfig) -> Named:
    """Named vectors; the unnamed one has the name ''."""
    match vectors.WhichOneof("vectors_options"):
        case "vector":
            return {"": _vector("", vectors.vector, config)}
        case "vectors":
            return {name: _vector(name, vector, config) for name, vector in vectors.vectors.vectors.items()}
        case _:
            return {}


def _vector(name: str, vector: q.Vector, config: CollectionConfig) -> edge.NamedVector:
    if name in config.sparse:
        sparse = vector.sparse if vector.WhichOneof("vector") == "sparse" else None
        indices, values = (sparse.indices, sparse.values) if sparse else (vector.indices.data, vector.data)
        return sparse_vector(list(indices), list(values))
    if name not in config.dense:
        raise invalid(f"Wrong input: Not existing vector name error: {name[:80]}")
    kind = vector.WhichOneof("vector")
    if kind not in (None, "dense"):
        raise unsupported(f"A vector given as `{kind}`")
    values = list(vector.dense.data) if kind else list(vector.data)
    expected = config.dense[name].size
    if len(values) != expected:
        raise invalid(f"Wrong input: Vector dimension error: expected dim: {expected}, got {len(values)}")
    return finite(values)


def from_point_id(point_id: Any) -> q.PointId:
    """A point id of the engine on the wire."""
    return q.PointId(num=point_id) if isinstance(point_id, int) else q.PointId(uuid=str(point_id))


def from_scored(point: edge.ScoredPoint) -> q.ScoredPoint:
    """A point found on the wire. Most searches ask for nothing but ids: that case is worth its branch."""
    found = q.ScoredPoint(id=from_point_id(point.id), score=point.score, version=point.version)
    payload, vectors = point.payload, _from_vectors(point.vector)
    if payload:
        for key, value in payload.items():
            found.payload[key].CopyFrom(json_to_value(value))
    if vectors is not None:
        found.vectors.CopyFrom(vectors)
    return found


def from_record(record: edge.Record) -> q.RetrievedPoint:
    return q.RetrievedPoint(
        id=from_point_id(record.id), payload=json_to_payload(record.payload), vectors=_from_vectors(record.vector)
    )


def _from_vectors(vectors: Any) -> q.VectorsOutput | None:
    if vectors is None:
        return None
    if isinstance(vectors, Mapping):
        named: Mapping[str, Any] = vectors
        return q.VectorsOutput(
            vectors=q.NamedVectorsOutput(vectors={name: _from_vector(vector) for name, vector in named.items()})
        )
    return q.VectorsOutput(vector=_from_vector(vectors))


def _from_vector(vector: Any) -> q.VectorOutput:
    if isinstance(vector, edge.SparseVector):
        return q.VectorOutput(sparse=q.SparseVector(indices=vector.indices, values=vector.values))
    return q.VectorOutput(dense=q.DenseVector(data=vector))
