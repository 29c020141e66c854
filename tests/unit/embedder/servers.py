"""The embedder behind a real gRPC server in this process, with tiny models on the fake backend."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from pergamon.client import AsyncClient
from pergamon.embedder.v1 import embedder_pb2_grpc as stubs

from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import GrpcServer
from services.embedder.app import EmbedderDeps, build
from services.embedder.settings import EmbedderSettings
from services.inference.cards import ModelCard, ModelKind
from services.inference.store import ModelStore
from services.inference.types import Output
from tests.helpers.inference import card, write_tiny_model

DENSE, ALL, SPARSE, BROKEN = "tiny", "tiny-all", "tiny-terms", "tiny-broken"
MULTI_DIMENSIONS = 16
MODELS = (
    card(name=DENSE, aliases=("small",), matryoshka_dimensions=(8, 16)),
    card(
        name=ALL,
        aliases=("everything",),
        query_prefix="w1 ",
        passage_prefix="w2 w3 ",
        extra_outputs=(Output.SPARSE, Output.MULTI_VECTOR),
        multi_vector_dimensions=MULTI_DIMENSIONS,
    ),
    card(ModelKind.SPARSE, name=SPARSE),
    card(name=BROKEN),
    card(ModelKind.RERANKER, name="tiny-judge"),
)


def install(models_dir: Path) -> Path:
    store = ModelStore(models_dir)
    for wanted in MODELS:
        store.add(wanted.name, lambda folder, wanted=wanted: _written(folder, wanted))
    (models_dir / BROKEN / "model.safetensors").write_bytes(b"not what the card describes")
    return models_dir


def _written(folder: Path, wanted: ModelCard) -> ModelCard:
    return write_tiny_model(folder, wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    client: AsyncClient
    stub: Any
    edge: Edge

    def sample(self, name: str, **labels: str) -> float:
        return self.edge.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def serving(
    models_dir: Path, *, authenticator: Authenticator | None = None, api_key: str | None = None, **settings: Any
) -> AsyncGenerator[Serving]:
    told = EmbedderSettings(
        **{
            "port": 0, "metrics_port": 0, "models_dir": models_dir, "backend": "fake", "pull_models": False,
            "embedding_models": DENSE, "drain_seconds": 1, **settings,
        }
    )  # fmt: skip
    edge = Edge(authenticator=authenticator or Authenticator.open_to_all(), metrics=Metrics(), clock=SystemClock())
    app = build(told, EmbedderDeps(edge=edge, metrics=edge.metrics))
    server = GrpcServer(settings=told, edge=edge, apps=[app])
    await server.start()
    target = f"127.0.0.1:{server.port}"
    try:
        async with (
            AsyncClient(target, api_key=api_key, timeout_s=20) as client,
            grpc.aio.insecure_channel(target) as channel,
        ):
            yield Serving(client=client, stub=stubs.EmbedderServiceStub(channel), edge=edge)
    finally:
        await server.stop()
