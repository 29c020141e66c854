"""When a retriever says that it can work: while catalogue and index answer."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from pergamon.client import AsyncClient
from qdrant_client import grpc as q

from services.catalog.catalog import Catalog, open_catalog
from services.catalog.settings import CatalogSettings
from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import Binding
from services.index.connection import IndexConnection
from services.retriever.app import RetrieverDeps, build
from services.retriever.settings import RetrieverSettings


class EmptyIndex(q.CollectionsServicer):
    async def CollectionExists(
        self, request: q.CollectionExistsRequest, context: grpc.aio.ServicerContext
    ) -> q.CollectionExistsResponse:
        return q.CollectionExistsResponse(result=q.CollectionExists(exists=False))


@pytest.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[Catalog]:
    async with open_catalog(CatalogSettings(url=f"sqlite:///{tmp_path / 'not' / 'there' / 'catalog.db'}")) as opened:
        yield opened


@pytest.fixture
async def index() -> AsyncIterator[IndexConnection]:
    server = grpc.aio.server()
    q.add_CollectionsServicer_to_server(EmptyIndex(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = IndexConnection(f"127.0.0.1:{port}")
    yield connection
    await connection.aclose()
    await server.stop(0)


def binding_of(catalog: Catalog, index: IndexConnection) -> Binding:
    metrics = Metrics()
    edge = Edge(authenticator=Authenticator.open_to_all(), metrics=metrics, clock=SystemClock())
    client = AsyncClient("127.0.0.1:1")
    deps = RetrieverDeps(edge=edge, metrics=metrics, catalog=catalog, index=index, client=client)
    return build(RetrieverSettings(), deps).bindings[0]


async def test_ready_when_catalogue_and_index_answer_then_until_the_catalogue_is_gone(
    catalog: Catalog, index: IndexConnection
) -> None:
    binding = binding_of(catalog, index)
    assert await binding.ready()
    await catalog.aclose()
    assert not await binding.ready()


async def test_answers_when_nothing_listens_then_false_within_the_time() -> None:
    connection = IndexConnection("127.0.0.1:1")
    assert not await connection.answers(timeout_s=0.2)
    await connection.aclose()
