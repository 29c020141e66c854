"""The four servers as processes of their own, with an engine process, API keys and a service token."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pergamon.client import AsyncClient, Targets

from tests.contract.index.engine import running_engine
from tests.helpers.keys import ACME, write_keys
from tests.helpers.models import install_tiny_models
from tests.helpers.servers import DRAIN_S, Server, free_port, settings_in

SERVICES = ("embedder", "reranker", "ingestor", "retriever")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    targets: dict[str, str]

    def client(self, key: str = ACME) -> AsyncClient:
        return AsyncClient(self.targets["retriever"], targets=Targets(**self.targets), api_key=key, timeout_s=30)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with keys and models; the secrets that have files of their own lie in files."""
    folder = tmp_path_factory.mktemp("deployment")
    install_tiny_models(folder / "models")
    write_keys(folder)
    (folder / "catalog-url").write_text(f"sqlite:///{folder / 'catalog.db'}\n")
    return folder


@pytest.fixture(scope="session")
def deployment(home: Path) -> Iterator[Deployment]:
    """All four at work; in the end each must leave with 0 within the time it has to drain."""
    with running_engine(home / "engine") as qdrant, contextlib.ExitStack() as closing:
        base = settings_in(home, PERGAMON_QDRANT_URL=qdrant, PERGAMON_CATALOG_URL_FILE=str(home / "catalog-url"))
        base |= write_keys(home)
        ports = {name: str(free_port()) for name in SERVICES}
        targets = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        for name in ("embedder", "reranker"):
            base[f"PERGAMON_{name.upper()}_TARGET"] = targets[name]
        servers: list[Server] = []
        for name in SERVICES:
            server = Server(name, base | {"PERGAMON_PORT": ports[name]})
            servers.append(server)
            closing.callback(server.kill)
        for server in servers:
            server.wait_until_ready()
        yield Deployment(targets=targets)
        for server, name in zip(servers, SERVICES, strict=True):
            code, seconds = server.stop()
            assert (name, code) == (name, 0)
            assert seconds < DRAIN_S + 5, f"{name} took {seconds:.1f} s to stop"
