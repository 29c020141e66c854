"""Updates of points, each cut into turns of the engine.

An update is checked as a whole before its first turn, so that a bad vector leaves nothing half written. Turns of one
update are not atomic together: whoever is killed in between was not acknowledged and repeats it.
"""

# pyright: reportUnnecessaryComparison=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import qdrant_edge as edge
from qdrant_client import grpc as q

from services.engine.errors import invalid, unsupported
from services.engine.filters import to_filter, to_point_id
from services.engine.payload import Json, payload_to_json
from services.engine.points import to_point, to_point_vectors
from services.engine.store import Collection
from services.engine.turns import Turns

#: Ids as qdrant-edge takes them: numbers, or texts of UUIDs.
PointIds: TypeAlias = "list[edge.PointId]"
#: Ids read from the engine at a time when an update names its points by a filter.
_IDS_PER_READ = 1_000

_MODES = {
    q.UpdateMode.Upsert: edge.UpdateMode.Upsert,
    q.UpdateMode.InsertOnly: edge.UpdateMode.InsertOnly,
    q.UpdateMode.UpdateOnly: edge.UpdateMode.UpdateOnly,
}


async def upsert(collection: Collection, request: q.UpsertPoints, turns: Turns) -> None:
    condition = to_filter(request.update_filter) if request.HasField("update_filter") else None
    mode = _MODES[request.update_mode] if request.HasField("update_mode") else None
    points: list[edge.Point] = []

    def read(part: Sequence[q.PointStruct]) -> None:
        points.extend(to_point(point, collection.config) for point in part)

    def write(part: Sequence[edge.Point]) -> None:
        collection.apply(edge.UpdateOperation.upsert_points(list(part), condition, mode))

    await turns.each(request.points, read)
    await turns.each(points, write)


async def update_vectors(collection: Collection, request: q.UpdatePointVectors, turns: Turns) -> None:
    condition = to_filter(request.update_filter) if request.HasField("update_filter") else None
    vectors: list[edge.PointVectors] = []

    def read(part: Sequence[q.PointVectors]) -> None:
        vectors.extend(to_point_vectors(point, collection.config) for point in part)

    def write(part: Sequence[edge.PointVectors]) -> None:
        collection.apply(edge.UpdateOperation.update_vectors(list(part), condition))

    await turns.each(request.points, read)
    await turns.each(vectors, write)


async def delete(collection: Collection, request: q.DeletePoints, turns: Turns) -> None:
    await _each_slice(
        collection, await _selected(collection, request.points, turns), edge.UpdateOperation.delete_points, turns
    )


async def set_payload(collection: Collection, request: q.SetPayloadPoints, turns: Turns) -> None:
    payload, key = _payload_and_key(request)

    def operation(ids: PointIds) -> edge.UpdateOperation:
        return edge.UpdateOperation.set_payload(ids, payload, key)

    await _each_slice(collection, await _selected(collection, request.points_selector, turns), operation, turns)


async def overwrite_payload(collection: Collection, request: q.SetPayloadPoints, turns: Turns) -> None:
    payload, key = _payload_and_key(request)

    def operation(ids: PointIds) -> edge.UpdateOperation:
        return edge.UpdateOperation.overwrite_payload(ids, payload, key)

    await _each_slice(collection, await _selected(collection, request.points_selector, turns), operation, turns)


async def delete_payload(collection: Collection, request: q.DeletePayloadPoints, turns: Turns) -> None:
    keys = list(request.keys)

    def operation(ids: PointIds) -> edge.UpdateOperation:
        return edge.UpdateOperation.delete_payload(ids, keys)

    await _each_slice(collection, await _selected(collection, request.points_selector, turns), operation, turns)


def _payload_and_key(request: q.SetPayloadPoints) -> tuple[dict[str, Json], str | None]:
    return payload_to_json(request.payload), request.key if request.HasField("key") else None


async def _selected(collection: Collection, selector: q.PointsSelector, turns: Turns) -> PointIds:
    """The ids an update is about. A filter is resolved once, before the first write: the caller holds `writer`."""
    match selector.WhichOneof("points_selector_one_of"):
        case "points":
            return [to_point_id(point_id) for point_id in selector.points.ids]
        case "filter":
            return await _matching(collection, to_filter(selector.filter), turns)
        case None:
            raise invalid("Points selector is empty: give ids or a filter")
        case other:
            raise unsupported(f"Points selector `{other}`")


async def _matching(collection: Collection, condition: edge.Filter, turns: Turns) -> PointIds:
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
        await turns.gap()


async def _each_slice(
    collection: Collection,
    ids: PointIds,
    operation: Callable[[PointIds], edge.UpdateOperation],
    turns: Turns,
) -> None:
    await turns.each(ids, lambda part: collection.apply(operation(list(part))))
