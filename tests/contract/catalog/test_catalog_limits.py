"""The bounds: how many may wait and how long, and what is said when the database does not answer."""

import asyncio
import threading
from pathlib import Path

import pytest
from catalog_builders import TENANT, make_kb
from sqlalchemy import Connection, create_engine

from services.catalog.catalog import Catalog, connect, open_catalog
from services.catalog.database import Database
from services.catalog.settings import CatalogSettings
from services.common.errors import Reason, Unavailable


async def test_call_when_too_many_wait_then_refused_at_once(url: str) -> None:
    database = Database(CatalogSettings(url=url, pool_size=1, max_waiting=2))
    gate = threading.Event()

    def hold(_: Connection) -> bool:
        return gate.wait(10)

    waiting = [asyncio.ensure_future(database.read(hold)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="busy") as raised:
        await database.read(hold)
    assert raised.value.error_reason is Reason.CATALOG_UNAVAILABLE
    gate.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await database.read(hold), "those that are through make room"
    await database.aclose()


async def test_call_when_it_takes_too_long_then_unavailable(url: str) -> None:
    database = Database(CatalogSettings(url=url, pool_size=1, call_timeout_s=0.05))
    gate = threading.Event()
    with pytest.raises(Unavailable, match="within"):
        await database.read(lambda _: gate.wait(10))
    gate.set()
    await database.aclose()


async def test_call_when_the_caller_goes_away_before_its_turn_then_it_never_runs(url: str) -> None:
    database = Database(CatalogSettings(url=url, pool_size=1))
    gate, ran = threading.Event(), []
    first = asyncio.ensure_future(database.read(lambda _: gate.wait(10)))
    second = asyncio.ensure_future(database.read(lambda _: ran.append(1)))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    gate.set()
    await first
    await database.aclose()
    assert ran == []


async def test_call_when_closed_then_unavailable(catalog: Catalog) -> None:
    await catalog.aclose()
    with pytest.raises(Unavailable, match="closed"):
        await catalog.knowledge_bases.list(TENANT)


async def test_write_when_another_process_holds_the_sqlite_lock_then_unavailable_and_reads_go_on(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    async with open_catalog(CatalogSettings(url=url, busy_timeout_ms=20)) as catalog:
        kb = await make_kb(catalog)
        engine = create_engine(url)
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable) as raised:
                await make_kb(catalog)
            assert raised.value.error_reason is Reason.CATALOG_UNAVAILABLE
            assert (await catalog.knowledge_bases.get(TENANT, kb.id)).id == kb.id
            connection.rollback()
        engine.dispose()
        assert await make_kb(catalog)


async def test_connect_when_nobody_listens_then_unavailable(tmp_path: Path) -> None:
    settings = CatalogSettings(url=f"postgresql://nobody@/none?host={tmp_path}", call_timeout_s=5)
    with pytest.raises(Unavailable):
        await connect(settings)


@pytest.mark.parametrize("wrong", [{"url": "mysql://x"}, {"pool_size": 0}, {"busy_timeout_ms": -1}])
def test_settings_when_wrong_then_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="catalog"):
        CatalogSettings(**{"url": "sqlite:////x", **wrong})  # pyright: ignore[reportArgumentType]
