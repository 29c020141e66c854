"""The schema: from empty, twice, by two openers, and the same as the tables say."""

import asyncio

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from catalog_builders import TENANT, make_kb
from sqlalchemy import create_engine, text

from services.catalog.catalog import connect, open_catalog
from services.catalog.settings import CatalogSettings
from services.catalog.tables import metadata
from services.common.errors import Reason, Unavailable


async def test_open_when_the_database_is_empty_then_the_schema_equals_the_tables(empty_url: str) -> None:
    async with open_catalog(CatalogSettings(url=empty_url)):
        engine = create_engine(empty_url)
        with engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        engine.dispose()


async def test_open_when_two_open_an_empty_database_at_once_then_both_work(empty_url: str) -> None:
    settings = CatalogSettings(url=empty_url)
    first, second = await asyncio.gather(connect(settings), connect(settings))
    kb = await make_kb(first)
    assert await second.knowledge_bases.get(TENANT, kb.id) == kb
    await first.aclose()
    await second.aclose()


async def test_open_when_reopened_then_nothing_is_lost(empty_url: str) -> None:
    async with open_catalog(CatalogSettings(url=empty_url)) as catalog:
        kb = await make_kb(catalog)
    async with open_catalog(CatalogSettings(url=empty_url)) as catalog:
        assert await catalog.knowledge_bases.get(TENANT, kb.id) == kb


async def test_open_when_a_newer_program_wrote_the_schema_then_unavailable(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(Unavailable, match="newer") as raised:
        await connect(CatalogSettings(url=url))
    assert raised.value.error_reason is Reason.CATALOG_UNAVAILABLE
