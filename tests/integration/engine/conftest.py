"""An engine process of its own for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from qdrant_client import AsyncQdrantClient, models

from services.engine.supervisor import EngineSupervisor


def client_of(target: str) -> AsyncQdrantClient:
    """The ordinary client, as any user of Qdrant has it."""
    host, _, port = target.rpartition(":")
    options = {
        "grpc.initial_reconnect_backoff_ms": 50,
        "grpc.min_reconnect_backoff_ms": 50,
        "grpc.max_reconnect_backoff_ms": 200,
    }
    return AsyncQdrantClient(
        host=host,
        grpc_port=int(port),
        prefer_grpc=True,
        check_compatibility=False,
        pool_size=1,
        timeout=20,
        grpc_options=options,
    )


async def make_collection(client: AsyncQdrantClient, name: str = "c") -> None:
    await client.create_collection(
        name,
        vectors_config={"dense": models.VectorParams(size=4, distance=models.Distance.COSINE)},
        sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )


def point(number: int, **payload: object) -> models.PointStruct:
    vector = {
        "dense": [1.0, float(number), 0.0, 0.0],
        "bm25": models.SparseVector(indices=[1, number + 10], values=[1.0, 2.0]),
    }
    return models.PointStruct(id=number, vector=vector, payload={"n": number, **payload})


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[EngineSupervisor]:
    supervisor = EngineSupervisor(tmp_path / "engine")
    await supervisor.start()
    yield supervisor
    await supervisor.aclose()


@pytest.fixture
async def client(supervisor: EngineSupervisor) -> AsyncIterator[AsyncQdrantClient]:
    client = client_of(supervisor.target)
    yield client
    await client.close()
