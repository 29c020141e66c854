"""The retriever with what it needs when it runs on its own, opened by its settings."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from services.catalog.catalog import open_catalog
from services.catalog.settings import CatalogSettings
from services.common.rpc import Edge
from services.common.server import App
from services.index.connection import IndexConnection
from services.retriever.app import RetrieverDeps, build, client_of
from services.retriever.settings import RetrieverSettings


@asynccontextmanager
async def opened(settings: RetrieverSettings, edge: Edge) -> AsyncGenerator[App]:
    """Catalogue, index, and a client of embedder and reranker. Errors: CATALOG_UNAVAILABLE."""
    async with AsyncExitStack() as closing:
        catalog = await closing.enter_async_context(open_catalog(CatalogSettings(url=settings.catalog_address())))
        index = IndexConnection(settings.qdrant_url, api_key=settings.qdrant_api_key())
        closing.push_async_callback(index.aclose)
        token = settings.service_token().get_secret_value()
        client = await closing.enter_async_context(client_of(settings, token))
        yield build(
            settings,
            RetrieverDeps(edge=edge, metrics=edge.metrics, catalog=catalog, index=index, client=client),
        )
