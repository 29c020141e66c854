"""The tei.v1 services beside our own, from the apps as they are put together: alone, and on one port."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pergamon.client import AsyncClient, rows

from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import App, GrpcServer
from services.common.settings import ServerSettings
from services.embedder import app as embedder
from services.embedder.settings import EmbedderSettings
from services.reranker import app as reranker
from services.reranker.settings import RerankerSettings
from services.tei import app as tei
from services.tei.models import Offers
from services.tei.v1 import tei_pb2 as pb
from services.tei.v1 import tei_pb2_grpc as stubs
from tests.helpers.models import DENSE, RERANKER, install_tiny_models
from tests.helpers.tei import failure

TEI = {f"tei.v1.{name}" for name in ("Info", "Embed", "Predict", "Rerank", "Tokenize")}
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_tiny_models(tmp_path_factory.mktemp("tei"))


def apps_of(kinds: Sequence[str], models_dir: Path, edge: Edge) -> list[App]:
    """One app alone, or several on one port with what they offer together, as the all-in-one puts them."""
    shared = {"models_dir": models_dir, "backend": "fake", "pull_models": False}
    offers = Offers() if len(kinds) > 1 else None
    apps: list[App] = []
    if "embedder" in kinds:
        deps = embedder.EmbedderDeps(edge=edge, metrics=edge.metrics, tei=offers)
        apps.append(embedder.build(EmbedderSettings(embedding_models=DENSE, **shared), deps))
    if "reranker" in kinds:
        deps = reranker.RerankerDeps(edge=edge, metrics=edge.metrics, tei=offers)
        apps.append(reranker.build(RerankerSettings(reranker_models=RERANKER, **shared), deps))
    return [*apps, App(bindings=tei.bindings(edge, offers))] if offers else apps


@asynccontextmanager
async def serving(models_dir: Path, *kinds: str) -> AsyncIterator[tuple[GrpcServer, grpc.aio.Channel]]:
    edge = Edge(authenticator=Authenticator.open_to_all(), metrics=Metrics(), clock=SystemClock())
    settings = ServerSettings(port=0, metrics_port=0, drain_seconds=1)
    server = GrpcServer(settings=settings, edge=edge, apps=apps_of(kinds, models_dir, edge))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield server, channel
    finally:
        await server.stop()


async def is_serving(channel: grpc.aio.Channel, name: str) -> bool:
    reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name))
    return reply.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("kinds", [("embedder",), ("reranker",), ("embedder", "reranker")], ids=" and ".join)
async def test_server_when_it_starts_then_each_service_is_there_once_and_serving(models_dir: Path, kinds: list[str]):
    async with serving(models_dir, *kinds) as (server, channel):
        names = Counter(binding.name for binding in server.bindings)
        assert names.keys() >= TEI
        assert len(names) == len(TEI) + len(kinds)
        assert set(names.values()) == {1}
        assert [name for name in (*names, "") if not await is_serving(channel, name)] == []


async def test_embedder_when_alone_then_it_embeds_and_says_that_it_does_not_rerank(models_dir: Path):
    async with serving(models_dir, "embedder") as (server, channel):
        info = await stubs.InfoStub(channel).Info(pb.InfoRequest())
        assert (info.model_id, info.model_type) == (DENSE, pb.MODEL_TYPE_EMBEDDING)
        reply = await stubs.EmbedStub(channel).Embed(pb.EmbedRequest(inputs="w1"))
        async with AsyncClient(f"127.0.0.1:{server.port}") as client:
            own = await client.embed(["w1"])
        assert list(reply.embeddings) == pytest.approx(rows(own.dense)[0].tolist())
        call = stubs.RerankStub(channel).Rerank(pb.RerankRequest(query="w1", texts=["w2"]))
        code, reason, _ = await failure(call)
        assert (code, reason) == (PRECONDITION, "WRONG_MODEL_KIND")


async def test_reranker_when_alone_then_it_reranks_and_tokenizes(models_dir: Path):
    async with serving(models_dir, "reranker") as (_, channel):
        info = await stubs.InfoStub(channel).Info(pb.InfoRequest())
        assert (info.model_id, info.model_type) == (RERANKER, pb.MODEL_TYPE_RERANKER)
        reply = await stubs.RerankStub(channel).Rerank(pb.RerankRequest(query="w1", texts=["w2", "w3"]))
        assert sorted(rank.index for rank in reply.ranks) == [0, 1]
        tokens = await stubs.TokenizeStub(channel).Tokenize(pb.EncodeRequest(inputs="w1 w2"))
        assert [token.text for token in tokens.tokens] == ["w1", "w2"]
        code, reason, _ = await failure(stubs.EmbedStub(channel).Embed(pb.EmbedRequest(inputs="w1")))
        assert (code, reason) == (PRECONDITION, "WRONG_MODEL_KIND")


async def test_both_when_on_one_port_then_one_address_embeds_and_reranks(models_dir: Path):
    async with serving(models_dir, "embedder", "reranker") as (_, channel):
        assert (await stubs.EmbedStub(channel).Embed(pb.EmbedRequest(inputs="w1"))).embeddings
        reply = await stubs.RerankStub(channel).Rerank(pb.RerankRequest(query="w1", texts=["w2"]))
        assert len(reply.ranks) == 1


async def test_health_when_it_is_checked_then_one_pass_of_each_model_answers_for_all_services(models_dir: Path):
    async with serving(models_dir, "embedder") as (server, channel):  # checks before it serves
        registry = server.edge.metrics.registry
        assert registry.get_sample_value("pergamon_inference_batch_items_count", {"model": DENSE}) == 1
        assert await is_serving(channel, "tei.v1.Embed")
