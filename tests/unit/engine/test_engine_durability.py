"""The log goes to disk soon, segments when nobody waits."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import qdrant_edge as edge

from services.engine.durability import QUIET_S, Durability
from services.engine.schema import CollectionConfig, DenseParams
from services.engine.store import Collection, Store
from services.engine.turns import Turns


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    store.create("c", CollectionConfig(dense={"": DenseParams(size=2, distance="Dot")}, sparse={}))
    yield store
    store.close()


def write(collection: Collection) -> None:
    collection.apply(edge.UpdateOperation.upsert_points([edge.Point(1, {"": [1.0, 2.0]}, {})]))


async def test_step_when_the_engine_is_in_use_then_the_log_is_synced_and_segments_wait(store: Store) -> None:
    clock = Clock()
    turns, collection = Turns(clock), store.get("c")
    write(collection)
    clock.now_s += QUIET_S / 2
    await Durability(store, turns).step()
    assert (collection.dirty, collection.unsynced) == (True, False)


async def test_step_when_the_engine_was_quiet_then_segments_are_flushed(store: Store) -> None:
    clock = Clock()
    turns, collection = Turns(clock), store.get("c")
    write(collection)
    clock.now_s += QUIET_S
    await Durability(store, turns).step()
    assert (collection.dirty, collection.unsynced) == (False, False)


async def test_step_when_the_log_is_long_then_segments_are_flushed_though_the_engine_is_in_use(store: Store) -> None:
    collection = store.get("c")
    write(collection)
    await Durability(store, Turns(Clock()), log_max_bytes=collection.log_bytes()).step()
    assert not collection.dirty
