"""The embedder as an application over a fake device that takes its time: tests can saturate it, and see its passes."""

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from pergamon.embedder.v1 import embedder_pb2
from ray import serve

from services.common.rpc import Edge
from services.common.server import App
from services.embedder import standalone
from services.embedder.settings import EmbedderSettings
from services.inference import loading
from services.inference.backends.fake import FakeBackend
from services.inference.types import TokenBatch
from services.launch.ray_apps import END_OF_STREAM, application
from services.launch.ray_replica import Replica, calls_of
from services.launch.ray_scaling import InferenceScaling
from tests.contract.serving.passes import Passes

SECONDS_A_TOKEN = 0.0005


@asynccontextmanager
async def _opened(settings: EmbedderSettings, edge: Edge) -> AsyncGenerator[App]:
    """In the process of a replica, which has this one device."""
    passes = Passes(settings.models_dir)

    def take_time(batch: TokenBatch) -> None:
        passes.add(os.getpid(), batch.size)
        time.sleep(batch.padded_tokens * SECONDS_A_TOKEN)

    loading.FakeBackend = partial(FakeBackend, before_run=take_time)  # pyright: ignore[reportAttributeAccessIssue]
    async with standalone.opened(settings, edge) as app:
        yield app


@calls_of(embedder_pb2.DESCRIPTOR.services_by_name["EmbedderService"], end_of_stream=END_OF_STREAM)
class SlowEmbedderReplica(Replica[EmbedderSettings]):
    read_settings, open_app = EmbedderSettings, _opened


def slow_embedder(scaling: InferenceScaling) -> serve.Application:
    return application("slow-embedder", SlowEmbedderReplica, scaling)
