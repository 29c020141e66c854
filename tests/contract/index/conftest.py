"""Targets of the contract: the engine process always, a Qdrant server when QDRANT_URL (host:port of gRPC) is set."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.index.connection import IndexConnection
from services.index.reader import IndexReader
from services.index.writer import IndexWriter
from tests.contract.index.builders import World, schema_of

TARGETS = ["engine"] + (["server"] if os.environ.get("QDRANT_URL") else [])


@pytest.fixture(scope="session")
def engine_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{probe.getsockname()[1]}"
    folder = tmp_path_factory.mktemp("engine")
    command = [sys.executable, "-m", "services.engine", "--data-dir", str(folder), "--port", target.rpartition(":")[2]]
    process = subprocess.Popen([*command, "--parent-pid", str(os.getpid())], cwd=Path(__file__).parents[3])
    try:
        with grpc.insecure_channel(target) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        yield target
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 0


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
