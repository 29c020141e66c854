"""The ingestor with what it needs when it runs on its own, opened by its settings."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from services.catalog.blob_settings import BlobSettings, open_blob_store
from services.catalog.catalog import open_catalog
from services.catalog.settings import CatalogSettings
from services.common.rpc import Edge
from services.common.server import App
from services.index.connection import IndexConnection
from services.ingestor.app import IngestorDeps, build, client_of
from services.ingestor.settings import IngestorSettings


@asynccontextmanager
async def opened(settings: IngestorSettings, edge: Edge) -> AsyncGenerator[App]:
    """Catalogue, blobs, index, and a client of the embedder. Errors: CATALOG_UNAVAILABLE, BLOB_STORE_UNAVAILABLE."""
    async with AsyncExitStack() as closing:
        catalog = await closing.enter_async_context(
            open_catalog(CatalogSettings(url=settings.catalog_address(), retire_delay_s=settings.retire_delay_s))
        )
        blobs = await open_blob_store(BlobSettings(url=settings.blobs_address()))
        index = IndexConnection(settings.qdrant_url, api_key=settings.qdrant_api_key())
        closing.push_async_callback(index.aclose)
        token = settings.service_token().get_secret_value()
        client = await closing.enter_async_context(client_of(settings, token))
        yield build(
            settings,
            IngestorDeps(edge=edge, metrics=edge.metrics, catalog=catalog, blobs=blobs, index=index, client=client),
        )
