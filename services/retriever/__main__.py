"""`python -m services.retriever`: the retriever as a server of its own. Settings: `PERGAMON_<FIELD>`."""

import asyncio
import sys
from contextlib import AsyncExitStack

from pydantic import ValidationError

from services.catalog.catalog import open_catalog
from services.catalog.settings import CatalogSettings
from services.common import logs
from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.errors import ServiceError
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import GrpcServer
from services.index.connection import IndexConnection
from services.retriever.app import RetrieverDeps, build, client_of
from services.retriever.settings import RetrieverSettings


async def serve(settings: RetrieverSettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    metrics = Metrics()
    token = settings.service_token().get_secret_value()
    edge = Edge(
        authenticator=Authenticator.load(settings.api_keys_file, token)
        if settings.api_keys_file
        else Authenticator.open_to_all(),
        metrics=metrics,
        clock=SystemClock(),
        default_timeout_s=settings.default_timeout_s,
        max_calls=settings.max_calls,
    )
    async with AsyncExitStack() as closing:
        catalog = await closing.enter_async_context(open_catalog(CatalogSettings(url=settings.catalog_address())))
        index = IndexConnection(settings.qdrant_url, api_key=settings.qdrant_api_key())
        closing.push_async_callback(index.aclose)
        client = await closing.enter_async_context(client_of(settings, token))
        app = build(settings, RetrieverDeps(edge=edge, metrics=metrics, catalog=catalog, index=index, client=client))
        server = GrpcServer(settings=settings, edge=edge, apps=[app])
        closing.push_async_callback(server.stop)
        await server.start()
        metrics.serve(settings.host, settings.metrics_port)
        await server.wait_for_signal()


def main() -> int:
    """Run until told to stop. Returns the process's exit code: 2 where it cannot start."""
    try:
        settings = RetrieverSettings()
    except ValidationError as error:
        print(error, file=sys.stderr)  # noqa: T201 - logging is set up by what could not be read
        return 2
    logs.configure(settings.log_level, settings.log_format)
    try:
        asyncio.run(serve(settings))
    except (ServiceError, OSError) as error:
        logs.get(__name__).error("cannot_start", reason=str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
