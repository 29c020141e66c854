"""Updates of points, each cut into turns of the engine.

An update is checked as a whole before its first turn, so that a bad vector leaves nothing half written. Turns of one
update are not atomic together: whoever is killed in between was not acknowledged and repeats it.
"""

# pyright: reportUnnecessaryComparison=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import qdrant_edge as edge
from qdrant_client import grpc as q

from services.engine.errors import invalid, unsupported
from services.engine.filters import to_filter, to_point_id
from services.engine.payload import Json, payload_to_json
from services.engine.points import to_point, to_point_vectors
from services.engine.store import Collection
from services.engine.turns import WriteTurns, slices

#: Ids as qdrant-edge takes them: numbers, or texts of UUIDs.
PointIds: TypeAlias = "list[edge.PointId]"
#: Ids read from the engine at a time when an update names its points by a filter.
_IDS_PER_READ = 2_000

_MODES = {
    q.UpdateMode.Upsert: edge.UpdateMode.Upsert,
    q.UpdateMode.InsertOnly: edge.UpdateMode.InsertOnly,
    q.UpdateMode.UpdateOnly: edge.UpdateMode.UpdateOnly,
}


async def upsert(collection: Collection, request: q.UpsertPoints, turns: WriteTurns) -> None:
    condition = to_filter(request.update_filter) if request.HasField("update_filter") else None
    mode = _MODES[request.update_mode] if request.HasField("update_mode") else None
    points: list[edge.Point] = []
    for part in slices(request.points):
        points.extend(to_point(point, collection.config) for point in part)
        await turns.gap()
    for part in slices(points):
        collection.apply(edge.UpdateOperation.upsert_points(list(part), condition, mode))
        await turns.gap()


async def update_vectors(collection: Collection, request: q.UpdatePointVectors, turns: WriteTurns) -> None:
    condition = to_filter(request.update_filter) if request.HasField("update_filter") else None
    vectors: list[edge.PointVectors] = []
    for part in slices(request.points):
        vectors.extend(to_point_vectors(point, collection.config) for point in part)
        await turns.gap()
    for part in slices(vectors):
        collection.apply(edge.UpdateOperation.update_vectors(list(part), condition))
        await turns.gap()


async def delete(collection: Collection, request: q.DeletePoints, turns: WriteTurns) -> None:
    await _each_slice(collection, _selected(collection, request.points), edge.UpdateOperation.delete_points, turns)


async def set_payload(collection: Collection, request: q.SetPayloadPoints, turns: WriteTurns) -> None:
    payload, key = _payload_and_key(request)

    def operation(ids: PointIds) -> edge.UpdateOperation:
        return edge.UpdateOperation.set_payload(ids, payload, key)

    await _each_slice(collection, _selected(collection, request.points_selector), operation, turns)


async def overwrite_payload(collection: Collection, request: q.SetPayloadPoints, turns: WriteTurns) -> None:
    payload, key = _payload_and_key(request)

    def operation(ids: PointIds) -> edge.UpdateOperation:
        return edge.UpdateOperation.overwrite_payload(ids, payload, key)

    await _each_slice(collection, _selected(collection, request.points_selector), operation, turns)


async def delete_payload(collection: Collection, request: q.DeletePayloadPoints, turns: WriteTurns) -> None:
    keys = list(request.keys)

    def operation(ids: PointIds) -> edge.UpdateOperation:
        return edge.UpdateOperation.delete_payload(ids, keys)

    await _each_slice(collection, _selected(collection, request.points_selector), operation, turns)


def _payload_and_key(request: q.SetPayloadPoints) -> tuple[dict[str, Json], str | None]:
    return payload_to_json(request.payload), request.key if request.HasField("key") else None


def _selected(collection: Collection, selector: q.PointsSelector) -> PointIds:
    """The ids an update is about. A filter is resolved once, before the first turn: the caller holds the write lock."""
    match selector.WhichOneof("points_selector_one_of"):
        case "points":
            return [to_point_id(point_id) for point_id in selector.points.ids]
        case "filter":
            return _matching(collection, to_filter(selector.filter))
        case None:
            raise invalid("Points selector is empty: give ids or a filter")
        case other:
            raise unsupported(f"Points selector `{other}`")


def _matching(collection: Collection, condition: edge.Filter) -> PointIds:
    ids: PointIds = []
    offset = None
    while True:
        records, offset = collection.shard.scroll(
            edge.ScrollRequest(
                offset=offset, limit=_IDS_PER_READ, filter=condition, with_payload=False, with_vector=False
            )
        )
        ids.extend(record.id if isinstance(record.id, int) else str(record.id) for record in records)
        if offset is None:
            return ids


async def _each_slice(
    collection: Collection,
    ids: PointIds,
    operation: Callable[[PointIds], edge.UpdateOperation],
    turns: WriteTurns,
) -> None:
    for part in slices(ids):
        collection.apply(operation(list(part)))
        await turns.gap()
