"""The embedder with what it needs when it runs on its own, opened by its settings."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from services.common.rpc import Edge
from services.common.server import App
from services.embedder.app import EmbedderDeps, build
from services.embedder.settings import EmbedderSettings


@asynccontextmanager
async def opened(settings: EmbedderSettings, edge: Edge) -> AsyncGenerator[App]:
    """Nothing has to be opened: the models are the app's own."""
    yield build(settings, EmbedderDeps(edge=edge, metrics=edge.metrics))
