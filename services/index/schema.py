"""The collection of a vector schema: its name, its vectors, and the payload keys that have an index."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import re
from dataclasses import dataclass

from qdrant_client import grpc as q

from services.common.errors import InvalidRequest, Reason, ServiceError
from services.index.connection import CollectionMissing, Deadline, IndexConnection

DENSE = "dense"
BM25 = "bm25"

_KEYWORD = q.FieldType.FieldTypeKeyword
_INTEGER = q.FieldType.FieldTypeInteger
_DATETIME = q.FieldType.FieldTypeDatetime
_TENANT = q.PayloadIndexParams(keyword_index_params=q.KeywordIndexParams(is_tenant=True))

#: Changes when points carry other payload than before: points of another layout are not read.
_LAYOUT = 2

#: Payload keys with an index, and its type: written in `services.index.payload`, asked for in `services.index.filters`.
PAYLOAD_INDEXES: dict[str, q.FieldType.ValueType] = {
    "scope": _KEYWORD,
    "kb_id": _KEYWORD,
    "doc_version": _INTEGER,
    "document_id": _KEYWORD,
    "embed_hash": _KEYWORD,
    "meta.name": _KEYWORD,
    "meta.title": _KEYWORD,
    "meta.author": _KEYWORD,
    "meta.language": _KEYWORD,
    "meta.document_type": _KEYWORD,
    "meta.source_url": _KEYWORD,
    "meta.tags": _KEYWORD,
    "meta.authoritative": _INTEGER,
    "meta.page_count": _INTEGER,
    "meta.created_time": _DATETIME,
    "meta.updated_time": _DATETIME,
    "label_terms": _KEYWORD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionSchema:
    """What vectors must have in common to share a collection. `tokenizer_version` is that of the BM25 terms."""

    model: str
    dimensions: int
    tokenizer_version: str

    @property
    def collection(self) -> str:
        """The collection's name: readable, and different whenever the schema is."""
        identity = f"{self.model}\n{self.dimensions}\n{self.tokenizer_version}\n{_LAYOUT}"
        slug = re.sub(r"[^a-z0-9]+", "-", self.model.lower()).strip("-")[:80]
        return f"{slug}-{self.dimensions}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"


class IndexSchemas:
    """Makes sure that collections exist and fit their schema; remembers those it has seen."""

    def __init__(self, connection: IndexConnection) -> None:
        self._connection = connection
        self._known: set[CollectionSchema] = set()

    async def ensure(self, schema: CollectionSchema, *, timeout_s: float) -> None:
        """Create what is missing of the schema's collection; harmless to repeat, and from several processes at once.

        Raises InvalidRequest (DIMENSION_MISMATCH) if the collection has another dimension.
        """
        if schema in self._known:
            return
        deadline = Deadline(timeout_s)
        try:
            info = await self._info(schema, deadline)
        except CollectionMissing:
            await self._create(schema, deadline)
            info = await self._info(schema, deadline)
        _check_fit(schema, info)
        for key, kind in PAYLOAD_INDEXES.items():
            if key not in info.payload_schema:
                await self._create_index(schema, key, kind, deadline)
        self._known.add(schema)

    def forget(self, schema: CollectionSchema) -> None:
        """Look again next time: the collection was found missing, or was removed."""
        self._known.discard(schema)

    async def drop(self, schema: CollectionSchema, *, timeout_s: float) -> None:
        """Remove the collection with everything in it, for all knowledge bases; nothing happens if it is not there."""
        self.forget(schema)
        request = q.DeleteCollection(collection_name=schema.collection)
        await self._connection.collections("Delete", request, Deadline(timeout_s))

    async def _info(self, schema: CollectionSchema, deadline: Deadline) -> q.CollectionInfo:
        request = q.GetCollectionInfoRequest(collection_name=schema.collection)
        reply: q.GetCollectionInfoResponse = await self._connection.collections("Get", request, deadline)
        return reply.result

    async def _create(self, schema: CollectionSchema, deadline: Deadline) -> None:
        dense = q.VectorParams(size=schema.dimensions, distance=q.Distance.Cosine)
        request = q.CreateCollection(
            collection_name=schema.collection,
            vectors_config=q.VectorsConfig(params_map=q.VectorParamsMap(map={DENSE: dense})),
            sparse_vectors_config=q.SparseVectorConfig(map={BM25: q.SparseVectorParams(modifier=q.Modifier.Idf)}),
            # No graph over all tenants but one for each: every search names its knowledge base.
            hnsw_config=q.HnswConfigDiff(m=0, payload_m=16),
        )
        try:
            await self._connection.collections("Create", request, deadline)
        except ServiceError:
            exists = q.CollectionExistsRequest(collection_name=schema.collection)
            reply: q.CollectionExistsResponse = await self._connection.collections("CollectionExists", exists, deadline)
            if not reply.result.exists:  # else another process was faster
                raise

    async def _create_index(
        self, schema: CollectionSchema, key: str, kind: q.FieldType.ValueType, deadline: Deadline
    ) -> None:
        request = q.CreateFieldIndexCollection(
            collection_name=schema.collection,
            wait=True,
            field_name=key,
            field_type=kind,
            field_index_params=_TENANT if key == "scope" else None,
        )
        await self._connection.points("CreateFieldIndex", request, deadline)


def _check_fit(schema: CollectionSchema, info: q.CollectionInfo) -> None:
    params = info.config.params
    found = params.vectors_config.params_map.map[DENSE].size if DENSE in params.vectors_config.params_map.map else 0
    if found != schema.dimensions:
        raise InvalidRequest(
            f"the collection of model {schema.model!r} has {found} dimensions, the model makes {schema.dimensions}",
            reason=Reason.DIMENSION_MISMATCH,
            metadata={"expected": str(found), "actual": str(schema.dimensions)},
        )
    if BM25 not in params.sparse_vectors_config.map:
        raise ServiceError(f"collection {schema.collection!r} has no {BM25!r} vectors: it was made by something else")
