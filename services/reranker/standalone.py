"""The reranker with what it needs when it runs on its own, opened by its settings."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from services.common.rpc import Edge
from services.common.server import App
from services.reranker.app import RerankerDeps, build
from services.reranker.settings import RerankerSettings


@asynccontextmanager
async def opened(settings: RerankerSettings, edge: Edge) -> AsyncGenerator[App]:
    """Nothing has to be opened: the models are the app's own."""
    yield build(settings, RerankerDeps(edge=edge, metrics=edge.metrics))
