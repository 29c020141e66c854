"""What a collection is made of: its vectors, kept as JSON beside the shard, and its payload indexes."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import qdrant_edge as edge
from qdrant_client import grpc as q

from services.engine.errors import invalid, unsupported

FORMAT_VERSION = 1
MAX_DIMENSIONS = 65_536
_DISTANCES = {
    "Cosine": edge.Distance.Cosine,
    "Euclid": edge.Distance.Euclid,
    "Dot": edge.Distance.Dot,
    "Manhattan": edge.Distance.Manhattan,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseParams:
    """A dense vector: its number of dimensions, and a distance named as Qdrant names it."""

    size: int
    distance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionConfig:
    """The vectors of a collection by name; `sparse` tells for each whether inverse document frequency is applied."""

    dense: dict[str, DenseParams]
    sparse: dict[str, bool]

    @classmethod
    def from_request(cls, request: q.CreateCollection) -> CollectionConfig:
        """The configuration that a request asks for; INVALID_ARGUMENT when it names no vector or an impossible one."""
        dense: dict[str, DenseParams] = {}
        match request.vectors_config.WhichOneof("config"):
            case "params":
                dense[""] = _dense(request.vectors_config.params)
            case "params_map":
                dense = {name: _dense(params) for name, params in request.vectors_config.params_map.map.items()}
            case _:
                pass
        sparse = {
            name: params.HasField("modifier") and params.modifier == q.Modifier.Idf
            for name, params in request.sparse_vectors_config.map.items()
        }
        if not dense and not sparse:
            raise invalid("Wrong input: a collection needs at least one dense or sparse vector")
        return cls(dense=dense, sparse=sparse)

    def to_edge(self) -> edge.EdgeConfig:
        return edge.EdgeConfig(
            vectors={
                name: edge.EdgeVectorParams(size=params.size, distance=_DISTANCES[params.distance])
                for name, params in self.dense.items()
            },
            sparse_vectors={
                name: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf if idf else None)
                for name, idf in self.sparse.items()
            },
        )

    def to_wire(self) -> q.CollectionParams:
        unnamed = self.dense.get("")
        vectors = (
            q.VectorsConfig(params=_wire_dense(unnamed))
            if unnamed
            else q.VectorsConfig(
                params_map=q.VectorParamsMap(map={name: _wire_dense(params) for name, params in self.dense.items()})
            )
        )
        sparse = {
            name: q.SparseVectorParams(modifier=q.Modifier.Idf) if idf else q.SparseVectorParams()
            for name, idf in self.sparse.items()
        }
        return q.CollectionParams(
            shard_number=1, vectors_config=vectors, sparse_vectors_config=q.SparseVectorConfig(map=sparse)
        )

    def to_json(self) -> str:
        dense = {name: {"size": params.size, "distance": params.distance} for name, params in self.dense.items()}
        return json.dumps({"format": FORMAT_VERSION, "dense": dense, "sparse": self.sparse}, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> CollectionConfig:
        """Raises ValueError for a file of another format version."""
        loaded: dict[str, Any] = json.loads(text)
        if loaded["format"] != FORMAT_VERSION:
            raise ValueError(f"collection format {loaded['format']}, this version reads {FORMAT_VERSION}")
        dense = {name: DenseParams(size=p["size"], distance=p["distance"]) for name, p in loaded["dense"].items()}
        return cls(dense=dense, sparse=dict(loaded["sparse"]))


def _dense(params: q.VectorParams) -> DenseParams:
    if not 1 <= params.size <= MAX_DIMENSIONS:
        raise invalid(f"Validation error: vector size {params.size} is not between 1 and {MAX_DIMENSIONS}")
    if params.HasField("multivector_config"):
        raise unsupported("A multivector")
    distance = q.Distance.Name(params.distance)
    if distance not in _DISTANCES:
        raise invalid(f"Validation error: distance `{distance}` is none of {', '.join(_DISTANCES)}")
    return DenseParams(size=params.size, distance=distance)


def _wire_dense(params: DenseParams) -> q.VectorParams:
    return q.VectorParams(size=params.size, distance=q.Distance.Value(params.distance))


_FIELD_TYPES: dict[int, edge.PayloadSchemaType] = {
    q.FieldType.FieldTypeKeyword: edge.PayloadSchemaType.Keyword,
    q.FieldType.FieldTypeInteger: edge.PayloadSchemaType.Integer,
    q.FieldType.FieldTypeFloat: edge.PayloadSchemaType.Float,
    q.FieldType.FieldTypeText: edge.PayloadSchemaType.Text,
    q.FieldType.FieldTypeBool: edge.PayloadSchemaType.Bool,
    q.FieldType.FieldTypeDatetime: edge.PayloadSchemaType.Datetime,
    q.FieldType.FieldTypeUuid: edge.PayloadSchemaType.Uuid,
}


def to_field_index(request: q.CreateFieldIndexCollection) -> edge.PayloadSchemaType | edge.PayloadSchemaParams:
    """The payload index asked for. Of the parameters, `is_tenant` and `is_principal` are kept; the rest only tunes."""
    params = request.field_index_params
    match params.WhichOneof("index_params"):
        case "keyword_index_params":
            return edge.KeywordIndexParams(is_tenant=params.keyword_index_params.is_tenant)
        case "integer_index_params":
            options = params.integer_index_params
            return edge.IntegerIndexParams(
                lookup=options.lookup if options.HasField("lookup") else True,
                range=options.range if options.HasField("range") else True,
                is_principal=options.is_principal,
            )
        case "text_index_params":
            raise unsupported("A text index with parameters")
        case _:
            pass
    if request.field_type not in _FIELD_TYPES:
        raise unsupported("This type of payload index")
    return _FIELD_TYPES[request.field_type]


def to_schema_info(info: edge.PayloadIndexInfo) -> q.PayloadSchemaInfo:
    """A payload index on the wire; the two enums name their types alike."""
    name = str(info.data_type).rpartition(".")[2]
    return q.PayloadSchemaInfo(data_type=q.PayloadSchemaType.Value(name), points=info.points)
