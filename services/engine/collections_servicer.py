"""Qdrant's Collections service and its root service."""

# pyright: reportIncompatibleMethodOverride=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
import time

import qdrant_edge as edge
from qdrant_client import grpc as q

from services.engine import rpc
from services.engine.schema import CollectionConfig, to_schema_info
from services.engine.store import Store
from services.engine.turns import Turns

#: The Qdrant protocol spoken here: clients that check it expect a server of this version.
PROTOCOL_VERSION = "1.19.0"


class CollectionsServicer(q.CollectionsServicer):
    """Create, describe, list and delete collections. What is not overridden answers UNIMPLEMENTED."""

    def __init__(self, store: Store, turns: Turns) -> None:
        self._store = store
        self._turns = turns

    @rpc.method
    async def Create(self, request: q.CreateCollection) -> q.CollectionOperationResponse:
        started = time.perf_counter()
        async with self._turns.writer():
            self._store.create(request.collection_name, CollectionConfig.from_request(request))
        return q.CollectionOperationResponse(result=True, time=time.perf_counter() - started)

    @rpc.method
    async def Delete(self, request: q.DeleteCollection) -> q.CollectionOperationResponse:
        started = time.perf_counter()
        async with self._turns.writer():
            deleted = self._store.delete(request.collection_name)
        return q.CollectionOperationResponse(result=deleted, time=time.perf_counter() - started)

    @rpc.method
    async def CollectionExists(self, request: q.CollectionExistsRequest) -> q.CollectionExistsResponse:
        exists = self._store.has(request.collection_name)
        return q.CollectionExistsResponse(result=q.CollectionExists(exists=exists))

    @rpc.method
    async def List(self, request: q.ListCollectionsRequest) -> q.ListCollectionsResponse:
        del request
        return q.ListCollectionsResponse(collections=[q.CollectionDescription(name=n) for n in self._store.names()])

    @rpc.method
    async def Get(self, request: q.GetCollectionInfoRequest) -> q.GetCollectionInfoResponse:
        collection = self._store.get(request.collection_name)
        info: edge.ShardInfo = collection.shard.info()
        return q.GetCollectionInfoResponse(
            result=q.CollectionInfo(
                status=q.CollectionStatus.Green,
                optimizer_status=q.OptimizerStatus(ok=True),
                segments_count=info.segments_count,
                points_count=info.points_count,
                indexed_vectors_count=info.indexed_vectors_count,
                config=_described(collection.config),
                payload_schema={key: to_schema_info(index) for key, index in info.payload_schema.items()},
            )
        )


def _described(config: CollectionConfig) -> q.CollectionConfig:
    """The configuration as clients expect it, complete: they refuse one without the engine's constants."""
    return q.CollectionConfig(
        params=config.to_wire(),
        hnsw_config=q.HnswConfigDiff(m=16, ef_construct=100, full_scan_threshold=10_000),
        optimizer_config=q.OptimizersConfigDiff(
            deleted_threshold=0.2, vacuum_min_vector_number=1_000, default_segment_number=1, flush_interval_sec=5
        ),
        wal_config=q.WalConfigDiff(wal_capacity_mb=32, wal_segments_ahead=0),
    )


class RootServicer(q.QdrantServicer):
    """Qdrant's own health call: which protocol this is, and (as the commit) which process answers."""

    @rpc.method
    async def HealthCheck(self, request: q.HealthCheckRequest) -> q.HealthCheckReply:
        del request
        return q.HealthCheckReply(title="pergamon embedded engine", version=PROTOCOL_VERSION, commit=f"{os.getpid()}")
