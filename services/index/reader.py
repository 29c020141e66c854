"""Reads the index: ranked lists for a search, and the text of what was found."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import AsyncIterator, Mapping, Sequence

from qdrant_client import grpc as q

from services.common.errors import InvalidRequest, Reason
from services.domain.ids import DocVersionId, IndexVersionId, KnowledgeBaseId
from services.index.connection import Deadline, IndexConnection
from services.index.filters import corpus_filter, doc_versions_condition, search_filter
from services.index.identities import IdentityCache
from services.index.payload import HIT_KEY, PASSAGE_KEYS, Identity, read_identity, read_passage
from services.index.schema import BM25, DENSE, CollectionSchema
from services.index.types import Floats, Hit, IndexQuery, SparseVector, StoredPassage, point_id

MAX_FETCH = 1_000
_PAGE_POINTS = 200
_IDENTITY = q.WithPayloadSelector(include=q.PayloadIncludeSelector(fields=[HIT_KEY]))
_PASSAGE = q.WithPayloadSelector(include=q.PayloadIncludeSelector(fields=PASSAGE_KEYS))


class IndexReader:
    """The retriever's side of the index.

    All methods raise Unavailable (INDEX_UNAVAILABLE) when the engine is down or does not answer within `timeout_s`, and
    its subclass CollectionMissing when nothing was ever written with the schema.
    """

    def __init__(self, connection: IndexConnection, identities: IdentityCache | None = None) -> None:
        self._connection = connection
        self._identities = identities or IdentityCache()

    async def search(self, query: IndexQuery, *, timeout_s: float) -> list[list[Hit]]:
        """One ranked list for each dense vector, then one for each sparse vector, best first, in one round trip
        (and a second one while the points are new to this process).

        Sparse lists hold only points that share a term with the query. Scores of a sparse list depend on the knowledge
        base's own points of that index version and on nothing else in the collection.
        """
        for vector in query.dense:
            if vector.shape != (query.schema.dimensions,):
                raise InvalidRequest(
                    f"a query vector has shape {vector.shape}, "
                    f"model {query.schema.model!r} makes ({query.schema.dimensions},)",
                    reason=Reason.DIMENSION_MISMATCH,
                )
        request = _batch(query)
        if not request.query_points:
            return []
        deadline = Deadline(timeout_s)
        reply: q.QueryBatchResponse = await self._connection.points("QueryBatch", request, deadline)
        lists = [[(point.id.uuid, point.version, point.score) for point in batch.result] for batch in reply.result]
        for i in range(len(query.dense), len(lists)):
            lists[i] = [found for found in lists[i] if found[2] > 0]
        known = await self._identify(query.schema, {found[0]: found[1] for hits in lists for found in hits}, deadline)
        return [[_hit(found[0], found[2], known[found[0]]) for found in hits if found[0] in known] for hits in lists]

    async def _identify(
        self, schema: CollectionSchema, versions: Mapping[str, int], deadline: Deadline
    ) -> dict[str, Identity]:
        """Which chunk each point is, by id. A point that was deleted since it was found is missing."""
        known, unknown = self._identities.lookup(versions)
        if unknown:
            request = q.GetPoints(
                collection_name=schema.collection,
                ids=[q.PointId(uuid=key) for key in unknown],
                with_payload=_IDENTITY,
            )
            reply: q.GetResponse = await self._connection.points("Get", request, deadline)
            fresh = [(record.id.uuid, read_identity(record.payload)) for record in reply.result]
            self._identities.keep([(key, versions[key], identity) for key, identity in fresh])
            known.update(fresh)
        return known

    async def fetch(
        self, schema: CollectionSchema, kb_id: KnowledgeBaseId, point_ids: Sequence[str], *, timeout_s: float
    ) -> dict[str, StoredPassage]:
        """Passages of points of this knowledge base, by point id; those that are gone, or another's, are missing."""
        if len(point_ids) > MAX_FETCH:
            raise InvalidRequest(f"{len(point_ids)} passages asked for at once, at most {MAX_FETCH}")
        if not point_ids:
            return {}
        request = q.GetPoints(
            collection_name=schema.collection, ids=[q.PointId(uuid=i) for i in point_ids], with_payload=_PASSAGE
        )
        reply: q.GetResponse = await self._connection.points("Get", request, Deadline(timeout_s))
        passages = [read_passage(record.payload) for record in reply.result]
        return {passage.point_id: passage for passage in passages if passage.kb_id == kb_id}

    async def neighbours(
        self,
        schema: CollectionSchema,
        kb_id: KnowledgeBaseId,
        *,
        index_version: IndexVersionId,
        doc_version: DocVersionId,
        first_ordinal: int,
        last_ordinal: int,
        timeout_s: float,
    ) -> list[StoredPassage]:
        """The passages of a document version between two ordinals, both included, in order; fewer at its ends."""
        ordinals = range(max(first_ordinal, 0), last_ordinal + 1)
        ids = [point_id(index_version, doc_version, ordinal) for ordinal in ordinals]
        passages = await self.fetch(schema, kb_id, ids, timeout_s=timeout_s)
        return sorted(passages.values(), key=lambda passage: passage.ordinal)

    async def passages(
        self,
        schema: CollectionSchema,
        kb_id: KnowledgeBaseId,
        *,
        index_version: IndexVersionId,
        doc_version: DocVersionId,
        timeout_s: float,
    ) -> AsyncIterator[StoredPassage]:
        """Every passage of a document version, in no order, read page by page; `timeout_s` bounds each page."""
        bounds = corpus_filter(kb_id, index_version)
        bounds.must.append(doc_versions_condition((doc_version,)))
        request = q.ScrollPoints(
            collection_name=schema.collection, filter=bounds, limit=_PAGE_POINTS, with_payload=_PASSAGE
        )
        while True:
            reply: q.ScrollResponse = await self._connection.points("Scroll", request, Deadline(timeout_s))
            for record in reply.result:
                yield read_passage(record.payload)
            if not reply.HasField("next_page_offset"):
                return
            request.offset.CopyFrom(reply.next_page_offset)


def _hit(point_id: str, score: float, identity: Identity) -> Hit:
    # In the order of Hit's fields: naming them would double the time.
    return Hit(point_id, score, identity.doc_version, identity.document_id, identity.ordinal, identity.content_hash)


def _batch(query: IndexQuery) -> q.QueryBatchPoints:
    bounds = search_filter(query.kb_id, query.index_version, query.hidden_doc_versions, query.filters)
    idf = q.SearchParams(idf=q.IdfParams(corpus=corpus_filter(query.kb_id, query.index_version)))
    name = query.schema.collection
    dense = [
        q.QueryPoints(
            collection_name=name,
            query=_dense(vector),
            using=DENSE,
            filter=bounds,
            limit=query.limit,
        )
        for vector in query.dense
    ]
    sparse = [
        q.QueryPoints(
            collection_name=name,
            query=_sparse(vector),
            using=BM25,
            filter=bounds,
            params=idf,
            limit=query.limit,
        )
        for vector in query.sparse
    ]
    return q.QueryBatchPoints(collection_name=name, query_points=dense + sparse)


def _dense(vector: Floats) -> q.Query:
    return q.Query(nearest=q.VectorInput(dense=q.DenseVector(data=vector.tolist())))


def _sparse(vector: SparseVector) -> q.Query:
    sparse = q.SparseVector(indices=vector.indices.tolist(), values=vector.values.tolist())
    return q.Query(nearest=q.VectorInput(sparse=sparse))
