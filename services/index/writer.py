"""Writes points: idempotent, in slices, acknowledged only when the engine has them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from qdrant_client import grpc as q

from services.common.errors import InvalidRequest, Reason
from services.domain.ids import DocVersionId, IndexVersionId, KnowledgeBaseId
from services.index.connection import CollectionMissing, Deadline, IndexConnection
from services.index.filters import corpus_filter, doc_versions_condition
from services.index.payload import metadata_payload, point_payload
from services.index.schema import BM25, DENSE, CollectionSchema, IndexSchemas
from services.index.types import Floats, IndexedDocument, PointWrite, SparseVector, point_id

#: Points per call: the embedded engine serves no query while it takes in one call's slice.
SLICE_POINTS = 200
#: Knowledge bases and documents a facet may return; more than any deployment has.
_FACET_LIMIT = 1_000_000

T = TypeVar("T")


class IndexWriter:
    """The ingestor's side of the index. Every method is safe to repeat.

    `timeout_s` bounds the whole of a method. All raise Unavailable (INDEX_UNAVAILABLE) when the engine is down or slow.
    """

    def __init__(self, connection: IndexConnection) -> None:
        self._connection = connection
        self._schemas = IndexSchemas(connection)

    async def write(
        self, schema: CollectionSchema, document: IndexedDocument, points: Sequence[PointWrite], *, timeout_s: float
    ) -> None:
        """Write chunks of one document version; a chunk written before is replaced.

        InvalidRequest (DIMENSION_MISMATCH) if a vector, or the collection there is, does not fit the schema.
        """
        deadline = Deadline(timeout_s)
        for point in points:
            _check(schema, point)
        await self._schemas.ensure(schema, timeout_s=timeout_s)
        shared = metadata_payload(document)
        for part in _slices(points):
            request = q.UpsertPoints(
                collection_name=schema.collection, wait=True, points=[_point(document, point, shared) for point in part]
            )
            await self._change(schema, "Upsert", request, deadline)

    async def set_metadata(self, schema: CollectionSchema, document: IndexedDocument, *, timeout_s: float) -> None:
        """Replace what filters see of a document version, in all its points; vectors and text stay."""
        request = q.SetPayloadPoints(
            collection_name=schema.collection,
            wait=True,
            payload=metadata_payload(document),
            points_selector=_versions(document.kb_id, (document.doc_version,)),
        )
        await self._change(schema, "SetPayload", request, Deadline(timeout_s))

    async def update_sparse(
        self,
        schema: CollectionSchema,
        index_version: IndexVersionId,
        doc_version: DocVersionId,
        vectors: Mapping[int, SparseVector],
        *,
        timeout_s: float,
    ) -> None:
        """Replace the BM25 vectors of chunks, by ordinal. Do this while the version's points are all there."""
        deadline = Deadline(timeout_s)
        for part in _slices(list(vectors.items())):
            points = [
                q.PointVectors(
                    id=q.PointId(uuid=point_id(index_version, doc_version, ordinal)),
                    vectors=_vectors({BM25: _sparse(vector)}),
                )
                for ordinal, vector in part
            ]
            request = q.UpdatePointVectors(collection_name=schema.collection, wait=True, points=points)
            await self._change(schema, "UpdateVectors", request, deadline)

    async def delete_versions(
        self,
        schema: CollectionSchema,
        kb_id: KnowledgeBaseId,
        doc_versions: Iterable[DocVersionId],
        *,
        timeout_s: float,
    ) -> None:
        """Remove all points of document versions of one knowledge base."""
        wanted = tuple(doc_versions)
        if wanted:
            await self._delete(schema, _versions(kb_id, wanted), Deadline(timeout_s))

    async def delete_index_version(
        self, schema: CollectionSchema, kb_id: KnowledgeBaseId, index_version: IndexVersionId, *, timeout_s: float
    ) -> None:
        """Remove all points of one index version of a knowledge base."""
        await self._delete(schema, q.PointsSelector(filter=corpus_filter(kb_id, index_version)), Deadline(timeout_s))

    async def delete_knowledge_base(
        self, schema: CollectionSchema, kb_id: KnowledgeBaseId, *, timeout_s: float
    ) -> None:
        """Remove all points of a knowledge base."""
        await self._delete(schema, q.PointsSelector(filter=corpus_filter(kb_id)), Deadline(timeout_s))

    async def count(
        self,
        schema: CollectionSchema,
        kb_id: KnowledgeBaseId,
        *,
        index_version: IndexVersionId | None = None,
        doc_version: DocVersionId | None = None,
        timeout_s: float,
    ) -> int:
        """How many points there are; 0 where the collection does not exist."""
        bounds = corpus_filter(kb_id, index_version)
        if doc_version is not None:
            bounds.must.append(doc_versions_condition((doc_version,)))
        request = q.CountPoints(collection_name=schema.collection, filter=bounds, exact=True)
        try:
            reply: q.CountResponse = await self._connection.points("Count", request, Deadline(timeout_s))
        except CollectionMissing:
            return 0
        return reply.result.count

    async def doc_versions(
        self, schema: CollectionSchema, kb_id: KnowledgeBaseId, *, timeout_s: float
    ) -> dict[DocVersionId, int]:
        """The document versions that have points, and how many: what a clean-up compares with the catalogue."""
        hits = await self._facet(schema, "doc_version", corpus_filter(kb_id), Deadline(timeout_s))
        return {DocVersionId(hit.value.integer_value): hit.count for hit in hits if hit.count}

    async def knowledge_bases(self, schema: CollectionSchema, *, timeout_s: float) -> dict[KnowledgeBaseId, int]:
        """The knowledge bases that have points in the collection, and how many."""
        hits = await self._facet(schema, "kb_id", None, Deadline(timeout_s))
        return {KnowledgeBaseId(hit.value.string_value): hit.count for hit in hits if hit.count}

    async def vectors_by_hash(
        self,
        schema: CollectionSchema,
        kb_id: KnowledgeBaseId,
        embed_hashes: Sequence[str],
        *,
        index_version: IndexVersionId | None = None,
        timeout_s: float,
    ) -> dict[str, Floats]:
        """Dense vectors (f32, unit length) of texts embedded before, by `payload.embed_hash`; some may be missing."""
        deadline = Deadline(timeout_s)
        found: dict[str, Floats] = {}
        for part in _slices(list(dict.fromkeys(embed_hashes))):
            bounds = corpus_filter(kb_id, index_version)
            match = q.Match(keywords=q.RepeatedStrings(strings=part))
            bounds.must.append(q.Condition(field=q.FieldCondition(key="embed_hash", match=match)))
            await self._collect_vectors(schema, bounds, set(part), found, deadline)
        return found

    async def _collect_vectors(
        self, schema: CollectionSchema, bounds: q.Filter, wanted: set[str], found: dict[str, Floats], deadline: Deadline
    ) -> None:
        request = q.ScrollPoints(
            collection_name=schema.collection,
            filter=bounds,
            limit=SLICE_POINTS,
            with_payload=q.WithPayloadSelector(include=q.PayloadIncludeSelector(fields=["embed_hash"])),
            with_vectors=q.WithVectorsSelector(include=q.VectorsSelector(names=[DENSE])),
        )
        while wanted:
            try:
                reply: q.ScrollResponse = await self._connection.points("Scroll", request, deadline)
            except CollectionMissing:
                return
            for record in reply.result:
                vector = record.vectors.vectors.vectors[DENSE]
                key = record.payload["embed_hash"].string_value
                found[key] = np.array(vector.dense.data or vector.data, dtype=np.float32)
                wanted.discard(key)
            if not reply.HasField("next_page_offset"):
                return
            request.offset.CopyFrom(reply.next_page_offset)

    async def _facet(
        self, schema: CollectionSchema, key: str, bounds: q.Filter | None, deadline: Deadline
    ) -> Sequence[q.FacetHit]:
        request = q.FacetCounts(
            collection_name=schema.collection, key=key, filter=bounds, limit=_FACET_LIMIT, exact=True
        )
        try:
            reply: q.FacetResponse = await self._connection.points("Facet", request, deadline)
        except CollectionMissing:
            return ()
        return reply.hits

    async def _delete(self, schema: CollectionSchema, selector: q.PointsSelector, deadline: Deadline) -> None:
        request = q.DeletePoints(collection_name=schema.collection, wait=True, points=selector)
        try:
            await self._connection.points("Delete", request, deadline)
        except CollectionMissing:
            self._schemas.forget(schema)  # nothing there is what was asked for

    async def _change(self, schema: CollectionSchema, method: str, request: object, deadline: Deadline) -> None:
        try:
            await self._connection.points(method, request, deadline)
        except CollectionMissing:
            self._schemas.forget(schema)
            raise


def _slices(entries: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(entries), SLICE_POINTS):
        yield entries[start : start + SLICE_POINTS]


def _versions(kb_id: KnowledgeBaseId, doc_versions: Iterable[DocVersionId]) -> q.PointsSelector:
    bounds = corpus_filter(kb_id)
    bounds.must.append(doc_versions_condition(doc_versions))
    return q.PointsSelector(filter=bounds)


def _check(schema: CollectionSchema, point: PointWrite) -> None:
    if point.dense.shape != (schema.dimensions,):
        raise InvalidRequest(
            f"the vector of chunk {point.chunk.ordinal} has shape {point.dense.shape}, "
            f"model {schema.model!r} makes ({schema.dimensions},)",
            reason=Reason.DIMENSION_MISMATCH,
        )
    if not (np.isfinite(point.dense).all() and np.isfinite(point.sparse.values).all()):
        raise InvalidRequest(f"a vector of chunk {point.chunk.ordinal} holds a value that is not finite")


def _point(document: IndexedDocument, point: PointWrite, shared: Mapping[str, q.Value]) -> q.PointStruct:
    dense = q.Vector(dense=q.DenseVector(data=point.dense.tolist()))
    return q.PointStruct(
        id=q.PointId(uuid=point_id(document.index_version, document.doc_version, point.chunk.ordinal)),
        vectors=_vectors({DENSE: dense, BM25: _sparse(point.sparse)}),
        payload=point_payload(document, point.chunk, shared),
    )


def _sparse(vector: SparseVector) -> q.Vector:
    return q.Vector(sparse=q.SparseVector(indices=vector.indices.tolist(), values=vector.values.tolist()))


def _vectors(named: Mapping[str, q.Vector]) -> q.Vectors:
    return q.Vectors(vectors=q.NamedVectors(vectors=named))
