"""All four services in one process, on one port, with the embedded engine beside them.

The services call each other with the same client that everyone uses: there is no second code path. They do so over a
socket file that only this user can open, so that TLS and the address outside are no concern of theirs.
"""

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

from pergamon.client import AsyncClient

from services.catalog.blob_settings import BlobSettings, open_blob_store
from services.catalog.catalog import connect as connect_catalog
from services.catalog.settings import CatalogSettings
from services.common import logs
from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import App, GrpcServer
from services.common.turns import turn
from services.embedder import app as embedder
from services.embedder.settings import EmbedderSettings
from services.engine.supervisor import EngineSupervisor
from services.index.connection import IndexConnection
from services.ingestor import app as ingestor
from services.ingestor.settings import IngestorSettings
from services.launch.settings import UpSettings
from services.reranker import app as reranker
from services.reranker.settings import RerankerSettings
from services.retriever import app as retriever
from services.retriever.settings import RetrieverSettings
from services.tei import app as tei
from services.tei.models import Offers

_log = logs.get(__name__)


class AllInOne:
    """`start`, then `wait_for_signal` or whatever the caller waits for, then `stop`."""

    def __init__(self, settings: UpSettings) -> None:
        self._settings = settings
        self._closing = contextlib.AsyncExitStack()
        self._server: GrpcServer | None = None
        self._local = ""

    @property
    def target(self) -> str:
        """Where it listens, as `host:port`; known once it is started."""
        host = "127.0.0.1" if self._settings.host in ("0.0.0.0", "::") else self._settings.host  # noqa: S104
        return f"{host}:{self._server.port if self._server else self._settings.port}"

    @property
    def local_target(self) -> str:
        """The socket file, for callers of the same user on this machine."""
        return self._local

    async def start(self) -> None:
        """Start everything, in the order of need; what was started is stopped again when a later part fails."""
        try:
            await self._start()
        except BaseException:
            await self._closing.aclose()
            raise

    async def wait_for_signal(self) -> None:
        if self._server is not None:
            await self._server.wait_for_signal()

    @property
    def failure(self) -> str:
        """Why it cannot go on; empty as long as it can."""
        return self._server.edge.failure if self._server else ""

    async def stop(self) -> None:
        await self._closing.aclose()

    async def _start(self) -> None:
        settings, metrics = self._settings, Metrics()
        # Not below the data folder: a path of more than 100 characters is none for a socket.
        folder = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="pergamon-"))
        self._local = f"unix:{folder}/grpc.sock"
        token = os.urandom(24).hex() if settings.api_keys_file else ""
        edge = Edge(
            authenticator=Authenticator.load(settings.api_keys_file, token)
            if settings.api_keys_file
            else Authenticator.open_to_all(),
            metrics=metrics,
            clock=SystemClock(),
            default_timeout_s=settings.default_timeout_s,
            max_calls=settings.max_calls,
        )
        engine = None if settings.qdrant_url else EngineSupervisor(settings.data_dir / "index")
        starting = asyncio.ensure_future(self._start_engine(engine))  # beside the models, which take as long
        await asyncio.sleep(0)
        qdrant = engine.target if engine else settings.qdrant_url
        of_ingestor = IngestorSettings(data_dir=settings.data_dir)
        catalog = await connect_catalog(
            CatalogSettings(
                url=settings.catalog_url or sqlite_url(settings.data_dir), retire_delay_s=of_ingestor.retire_delay_s
            )
        )
        self._closing.push_async_callback(catalog.aclose)
        blobs = await open_blob_store(BlobSettings(url=settings.blobs_url or folder_url(settings.data_dir)))
        index = IndexConnection(qdrant, api_key=settings.qdrant_api_key())
        self._closing.push_async_callback(index.aclose)
        client = await self._closing.enter_async_context(
            AsyncClient(self._local, api_key=token or None, on_behalf_of=turn)
        )
        searching = AsyncClient(self._local, api_key=token or None, retry=retriever.RETRY, on_behalf_of=turn)
        await self._closing.enter_async_context(searching)
        shared: dict[str, Any] = {
            "models_dir": settings.models_dir,
            "threads": settings.threads,
            "pull_models": settings.pull_models,
        }
        offers = Offers(max_reply_bytes=settings.max_message_mib << 20)
        apps: list[App] = [
            embedder.build(
                EmbedderSettings(**shared),
                embedder.EmbedderDeps(edge=edge, metrics=metrics, tei=offers),
            ),
            reranker.build(
                RerankerSettings(**shared),
                reranker.RerankerDeps(edge=edge, metrics=metrics, tei=offers),
            ),
            ingestor.build(
                of_ingestor,
                ingestor.IngestorDeps(
                    edge=edge, metrics=metrics, catalog=catalog, blobs=blobs, index=index, client=client
                ),
            ),
            retriever.build(
                RetrieverSettings(),
                retriever.RetrieverDeps(edge=edge, metrics=metrics, catalog=catalog, index=index, client=searching),
            ),
            App(bindings=tei.bindings(edge, offers)),
        ]
        self._server = GrpcServer(settings=settings, edge=edge, apps=apps, local_address=self._local)
        self._closing.push_async_callback(self._server.stop)
        serving = asyncio.ensure_future(self._server.start())
        try:
            await asyncio.gather(starting, serving)
        except BaseException:
            serving.cancel()  # else it would go on to serve what is being taken down
            await asyncio.gather(serving, return_exceptions=True)
            raise
        metrics.serve(settings.host, settings.metrics_port)

    async def _start_engine(self, engine: EngineSupervisor | None) -> None:
        if engine is not None:
            self._closing.push_async_callback(engine.aclose)
            await engine.start()


def sqlite_url(data_dir: Path) -> str:
    data_dir.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{(data_dir / 'catalog.db').resolve()}"


def folder_url(data_dir: Path) -> str:
    return (data_dir / "blobs").resolve().as_uri()
