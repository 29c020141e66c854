"""Targets of the contract: the engine process always, a Qdrant server when QDRANT_URL (host:port of gRPC) is set."""

import os
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from services.index.connection import IndexConnection
from services.index.reader import IndexReader
from services.index.writer import IndexWriter
from tests.contract.index.builders import World, schema_of
from tests.contract.index.engine import running_engine

TARGETS = ["engine"] + (["server"] if os.environ.get("QDRANT_URL") else [])


@pytest.fixture(scope="session")
def engine_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_engine(tmp_path_factory.mktemp("engine")) as target:
        yield target


@pytest.fixture(scope="session", params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    if request.param == "server":
        return os.environ["QDRANT_URL"]
    return request.getfixturevalue("engine_target")


@pytest.fixture(scope="session")
def model(target: str) -> str:
    """A model name of this run, so that a server that is kept starts every run with a collection of its own."""
    return f"Contract/{secrets.token_hex(4)}"


@pytest.fixture
async def connection(target: str) -> AsyncIterator[IndexConnection]:
    connection = IndexConnection(target)
    yield connection
    await connection.aclose()


@pytest.fixture
def world(connection: IndexConnection, model: str) -> World:
    return World(IndexReader(connection), IndexWriter(connection), schema_of(model))
