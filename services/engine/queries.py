"""Queries between the wire and qdrant-edge."""

# pyright: reportReturnType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math

import qdrant_edge as edge
from qdrant_client import grpc as q

from services.engine.errors import invalid, unsupported
from services.engine.filters import to_filter
from services.engine.payload import payload_selector, vectors_selector

DEFAULT_LIMIT = 10
MAX_LIMIT = 100_000
MAX_PREFETCH_DEPTH = 8
#: Qdrant's own constant of reciprocal rank fusion when the caller sends none.
DEFAULT_RRF_K = 2


def to_query(request: q.QueryPoints) -> edge.QueryRequest:
    """One wire query as the engine's own."""
    return edge.QueryRequest(
        limit=_limit(request.limit if request.HasField("limit") else DEFAULT_LIMIT),
        offset=request.offset if request.HasField("offset") else None,
        query=_scoring(request.query, request.using) if request.HasField("query") else None,
        prefetches=[_prefetch(entry, 1) for entry in request.prefetch] or None,
        with_vector=vectors_selector(request.with_vectors),
        with_payload=payload_selector(request.with_payload),
        filter=to_filter(request.filter) if request.HasField("filter") else None,
        score_threshold=request.score_threshold if request.HasField("score_threshold") else None,
        params=_params(request.params) if request.HasField("params") else None,
    )


def _limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise invalid(f"Validation error: limit {limit} is not between 1 and {MAX_LIMIT}")
    return limit


def _prefetch(request: q.PrefetchQuery, depth: int) -> edge.Prefetch:
    if depth > MAX_PREFETCH_DEPTH:
        raise invalid(f"Prefetches are nested deeper than {MAX_PREFETCH_DEPTH} levels")
    return edge.Prefetch(
        limit=_limit(request.limit if request.HasField("limit") else DEFAULT_LIMIT),
        query=_scoring(request.query, request.using) if request.HasField("query") else None,
        prefetches=[_prefetch(entry, depth + 1) for entry in request.prefetch] or None,
        params=_params(request.params) if request.HasField("params") else None,
        filter=to_filter(request.filter) if request.HasField("filter") else None,
        score_threshold=request.score_threshold if request.HasField("score_threshold") else None,
    )


def _scoring(query: q.Query, using: str) -> edge.ScoringQueryType:
    match query.WhichOneof("variant"):
        case "nearest":
            return edge.Query.Nearest(_query_vector(query.nearest), using=using or None)
        case "rrf":
            k = query.rrf.k if query.rrf.HasField("k") else DEFAULT_RRF_K
            return edge.Fusion.Rrf(k, list(query.rrf.weights) or None)
        case "fusion":
            return edge.Fusion.Dbsf() if query.fusion == q.Fusion.DBSF else edge.Fusion.Rrf(DEFAULT_RRF_K)
        case "order_by":
            return to_order_by(query.order_by)
        case other:
            raise unsupported(f"Query `{other}`") if other else invalid("Query is empty")


def _query_vector(vector: q.VectorInput) -> edge.NamedVector:
    match vector.WhichOneof("variant"):
        case "dense":
            return finite(list(vector.dense.data))
        case "sparse":
            return sparse_vector(list(vector.sparse.indices), list(vector.sparse.values))
        case other:
            raise unsupported(f"A query by `{other}`") if other else invalid("Query vector is empty")


def finite(values: list[float]) -> list[float]:
    """`values`, or INVALID_ARGUMENT if one of them is NaN or infinite: the engine would store even those."""
    if not math.isfinite(sum(values)):
        raise invalid("Validation error: a vector holds a value that is not finite")
    return values


def sparse_vector(indices: list[int], values: list[float]) -> edge.SparseVector:
    """A sparse vector; INVALID_ARGUMENT unless there are as many values as indices and no index repeats."""
    if len(indices) != len(values):
        raise invalid(f"Validation error: {len(indices)} indices but {len(values)} values in a sparse vector")
    if len(set(indices)) != len(indices):
        raise invalid("Validation error: indices of a sparse vector must be unique")
    return edge.SparseVector(indices, finite(values))


def _params(params: q.SearchParams) -> edge.SearchParams:
    idf = None
    if params.HasField("idf"):
        corpus = to_filter(params.idf.corpus) if params.idf.HasField("corpus") else None
        idf = edge.IdfParams(corpus=corpus)
    return edge.SearchParams(
        hnsw_ef=params.hnsw_ef if params.HasField("hnsw_ef") else None,
        exact=params.exact,
        indexed_only=params.indexed_only,
        idf=idf,
    )


def to_order_by(order: q.OrderBy) -> edge.OrderBy:
    """An ordering by a payload key that has an index."""
    descending = order.HasField("direction") and order.direction == q.Direction.Desc
    start: edge.StartFromType | None = None
    if order.HasField("start_from"):
        kind = order.start_from.WhichOneof("value")
        if kind not in ("float", "integer", "datetime"):
            raise unsupported(f"`start_from` as `{kind}`")
        start = getattr(order.start_from, kind)
    return edge.OrderBy(order.key, edge.Direction.Desc if descending else edge.Direction.Asc, start)
