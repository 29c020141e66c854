"""The catalogue's front door: one attribute per part, over one database."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from sqlalchemy import select

from services.catalog.cleanup import Cleanup
from services.catalog.database import Database
from services.catalog.documents import Documents
from services.catalog.jobs import Jobs
from services.catalog.knowledge_bases import KnowledgeBases
from services.catalog.settings import CatalogSettings
from services.catalog.snapshot import Snapshots
from services.catalog.versions import Versions
from services.common.errors import Unavailable


class Catalog:
    """Every lookup takes the tenant, and another tenant's id is NotFound exactly like an unknown one.

    Methods without a tenant are for workers, which got their ids from a lease.
    """

    def __init__(self, database: Database, settings: CatalogSettings) -> None:
        self._database = database
        self.knowledge_bases = KnowledgeBases(database, settings)
        self.documents = Documents(database, settings)
        self.versions = Versions(database, settings)
        self.jobs = Jobs(database, settings)
        self.snapshots = Snapshots(database)
        self.cleanup = Cleanup(database)

    async def answers(self) -> bool:
        """Whether the database can be read now; it may take as long as any read."""
        try:
            return await self._database.read(lambda connection: connection.execute(select(1)).scalar_one() == 1)
        except Unavailable:
            return False

    async def aclose(self) -> None:
        await self._database.aclose()


@asynccontextmanager
async def open_catalog(settings: CatalogSettings, *, now: Callable[[], float] = time.time) -> AsyncGenerator[Catalog]:
    """Open, bring the schema up to date, and close at the end. `now` gives seconds since 1970.

    Errors: CATALOG_UNAVAILABLE.
    """
    catalog = await connect(settings, now=now)
    try:
        yield catalog
    finally:
        await catalog.aclose()


async def connect(settings: CatalogSettings, *, now: Callable[[], float] = time.time) -> Catalog:
    """As `open_catalog`, for owners that close it themselves with `aclose`."""
    database = Database(settings, now=now)
    try:
        await database.open()
    except BaseException:
        await database.aclose()
        raise
    return Catalog(database, settings)
