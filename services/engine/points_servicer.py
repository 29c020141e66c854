"""Qdrant's Points service: convert in, call, convert out. What is not overridden answers UNIMPLEMENTED."""

# pyright: reportIncompatibleMethodOverride=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import qdrant_edge as edge
from qdrant_client import grpc as q

from services.engine import rpc, updates
from services.engine.errors import invalid
from services.engine.filters import to_filter, to_point_id
from services.engine.payload import payload_selector, vectors_selector
from services.engine.points import from_point_id, from_record
from services.engine.queries import MAX_LIMIT, to_order_by, to_query
from services.engine.replies import query_batch_reply, query_reply
from services.engine.schema import to_field_index
from services.engine.store import Collection, Store
from services.engine.turns import Turns

MAX_BATCH = 256
Request = TypeVar("Request")


class PointsServicer(q.PointsServicer):
    """Reads run at once in the event loop (the engine keeps the interpreter anyway), updates in turns."""

    def __init__(self, store: Store, turns: Turns) -> None:
        self._store = store
        self._turns = turns
        self._operations = 0

    @rpc.method
    async def Upsert(self, request: q.UpsertPoints) -> q.PointsOperationResponse:
        return await self._update(request.collection_name, request, updates.upsert)

    @rpc.method
    async def Delete(self, request: q.DeletePoints) -> q.PointsOperationResponse:
        return await self._update(request.collection_name, request, updates.delete)

    @rpc.method
    async def UpdateVectors(self, request: q.UpdatePointVectors) -> q.PointsOperationResponse:
        return await self._update(request.collection_name, request, updates.update_vectors)

    @rpc.method
    async def SetPayload(self, request: q.SetPayloadPoints) -> q.PointsOperationResponse:
        return await self._update(request.collection_name, request, updates.set_payload)

    @rpc.method
    async def OverwritePayload(self, request: q.SetPayloadPoints) -> q.PointsOperationResponse:
        return await self._update(request.collection_name, request, updates.overwrite_payload)

    @rpc.method
    async def DeletePayload(self, request: q.DeletePayloadPoints) -> q.PointsOperationResponse:
        return await self._update(request.collection_name, request, updates.delete_payload)

    @rpc.method
    async def CreateFieldIndex(self, request: q.CreateFieldIndexCollection) -> q.PointsOperationResponse:
        operation = edge.UpdateOperation.create_field_index(request.field_name, to_field_index(request))
        return await self._apply(request.collection_name, operation)

    @rpc.method
    async def DeleteFieldIndex(self, request: q.DeleteFieldIndexCollection) -> q.PointsOperationResponse:
        return await self._apply(request.collection_name, edge.UpdateOperation.delete_field_index(request.field_name))

    @rpc.method
    async def Get(self, request: q.GetPoints) -> q.GetResponse:
        started = time.perf_counter()
        ids = [to_point_id(point_id) for point_id in request.ids]
        with self._turns.reader():
            records = self._store.get(request.collection_name).shard.retrieve(
                list(ids), payload_selector(request.with_payload), vectors_selector(request.with_vectors)
            )
            return q.GetResponse(result=[from_record(record) for record in records], time=time.perf_counter() - started)

    @rpc.method
    async def Scroll(self, request: q.ScrollPoints) -> q.ScrollResponse:
        started = time.perf_counter()
        limit = request.limit if request.HasField("limit") else 10
        if not 1 <= limit <= MAX_LIMIT:
            raise invalid(f"Validation error: limit {limit} is not between 1 and {MAX_LIMIT}")
        records, following = self._store.get(request.collection_name).shard.scroll(
            edge.ScrollRequest(
                offset=to_point_id(request.offset) if request.HasField("offset") else None,
                limit=limit,
                filter=to_filter(request.filter) if request.HasField("filter") else None,
                with_payload=payload_selector(request.with_payload),
                with_vector=vectors_selector(request.with_vectors),
                order_by=to_order_by(request.order_by) if request.HasField("order_by") else None,
            )
        )
        return q.ScrollResponse(
            result=[from_record(record) for record in records],
            next_page_offset=None if following is None else from_point_id(following),
            time=time.perf_counter() - started,
        )

    @rpc.method
    async def Count(self, request: q.CountPoints) -> q.CountResponse:
        started = time.perf_counter()
        condition = to_filter(request.filter) if request.HasField("filter") else None
        exact = request.exact if request.HasField("exact") else True
        count = self._store.get(request.collection_name).shard.count(edge.CountRequest(exact, condition))
        return q.CountResponse(result=q.CountResult(count=count), time=time.perf_counter() - started)

    @rpc.method
    async def Facet(self, request: q.FacetCounts) -> q.FacetResponse:
        started = time.perf_counter()
        found = self._store.get(request.collection_name).shard.facet(
            edge.FacetRequest(
                request.key,
                limit=request.limit if request.HasField("limit") else 10,
                exact=request.exact if request.HasField("exact") else False,
                filter=to_filter(request.filter) if request.HasField("filter") else None,
            )
        )
        hits = [q.FacetHit(value=_facet_value(hit.value), count=hit.count) for hit in found.hits]
        return q.FacetResponse(hits=hits, time=time.perf_counter() - started)

    @rpc.method
    async def Query(self, request: q.QueryPoints) -> bytes:
        """Answers a serialised QueryResponse."""
        started = time.perf_counter()
        with self._turns.reader():
            hits = self._store.get(request.collection_name).shard.query(to_query(request))
            return query_reply(hits, time.perf_counter() - started, bare=_is_bare(request))

    @rpc.method
    async def QueryBatch(self, request: q.QueryBatchPoints) -> bytes:
        """Answers a serialised QueryBatchResponse."""
        started = time.perf_counter()
        if len(request.query_points) > MAX_BATCH:
            raise invalid(f"Validation error: {len(request.query_points)} queries in a batch, at most {MAX_BATCH}")
        collection = self._store.get(request.collection_name)
        if any(query.collection_name != request.collection_name for query in request.query_points):
            raise invalid("Wrong input: every query of a batch must name the batch's collection")
        with self._turns.reader():
            queries = [to_query(query) for query in request.query_points]
            lists = collection.shard.query_batch(edge.QueryBatchRequest(queries)) if queries else []
            bare = [_is_bare(query) for query in request.query_points]
            return query_batch_reply(lists, time.perf_counter() - started, bare=bare)

    async def _update(
        self, name: str, request: Request, update: Callable[[Collection, Request, Turns], Awaitable[None]]
    ) -> q.PointsOperationResponse:
        started = time.perf_counter()
        async with self._turns.writer():
            await update(self._store.get(name), request, self._turns)
        return self._done(started)

    async def _apply(self, name: str, operation: edge.UpdateOperation) -> q.PointsOperationResponse:
        started = time.perf_counter()
        async with self._turns.writer():
            self._store.get(name).apply(operation)
            await asyncio.sleep(0)
        return self._done(started)

    def _done(self, started: float) -> q.PointsOperationResponse:
        self._operations += 1
        result = q.UpdateResult(operation_id=self._operations, status=q.UpdateStatus.Completed)
        return q.PointsOperationResponse(result=result, time=time.perf_counter() - started)


def register(servicer: PointsServicer, server: grpc.aio.Server) -> None:
    """Add the service; the methods that answer bytes get a handler that leaves them as they are, which goes first."""
    q.add_PointsServicer_to_server(servicer, server)
    queries = {"Query": (servicer.Query, q.QueryPoints), "QueryBatch": (servicer.QueryBatch, q.QueryBatchPoints)}
    server.add_registered_method_handlers(
        "qdrant.Points",
        {
            name: grpc.unary_unary_rpc_method_handler(method, request_deserializer=request.FromString)
            for name, (method, request) in queries.items()
        },
    )


def _is_bare(request: q.QueryPoints) -> bool:
    """Whether nothing but ids and scores is asked for."""
    return payload_selector(request.with_payload) is False and vectors_selector(request.with_vectors) is False


def _facet_value(value: str | int | bool) -> q.FacetValue:
    match value:
        case bool():
            return q.FacetValue(bool_value=value)
        case int():
            return q.FacetValue(integer_value=value)
        case str():
            return q.FacetValue(string_value=value)
