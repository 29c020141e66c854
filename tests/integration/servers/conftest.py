"""The four servers as processes of their own, with an engine process, API keys and a service token."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pergamon.client import AsyncClient, Targets

from tests.contract.index.engine import running_engine
from tests.helpers.keys import ACME, write_keys
from tests.helpers.models import DENSE, RERANKER, install_tiny_models

ROOT = Path(__file__).parents[3]
SERVICES = ("embedder", "reranker", "ingestor", "retriever")
DRAIN_S = 5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """`python -m services.NAME` with these settings."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.port = int(environment["PERGAMON_PORT"])
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"services.{name}"], cwd=ROOT, env={**without_settings(), **environment}
        )

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wait_until_ready(self) -> None:
        """Until every service of it reports SERVING."""
        with grpc.insecure_channel(self.target) as channel:
            grpc.channel_ready_future(channel).result(timeout=90)
            request = health_pb2.HealthCheckRequest(service="")
            for reply in health_pb2_grpc.HealthStub(channel).Watch(request, timeout=60):
                if reply.status == health_pb2.HealthCheckResponse.SERVING:
                    return
        raise AssertionError("the server stopped reporting its health")

    def stop(self) -> tuple[int, float]:
        """SIGTERM. Returns the exit code, and after how many seconds."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60), time.monotonic() - started

    def stop_while_starting(self) -> int:
        """SIGTERM as soon as the process listens to it, which is long before it serves. Returns the exit code."""
        deadline = time.monotonic() + 60
        while not self._catches_sigterm():
            assert time.monotonic() < deadline, "the server never listened to SIGTERM"
        return self.stop()[0]

    def _catches_sigterm(self) -> bool:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    targets: dict[str, str]

    def client(self, key: str = ACME) -> AsyncClient:
        return AsyncClient(self.targets["retriever"], targets=Targets(**self.targets), api_key=key, timeout_s=30)


def settings_in(folder: Path, **more: str) -> dict[str, str]:
    """What a server is told that runs in `folder`: a free port, a fake model, keys."""
    return {
        "PERGAMON_PORT": str(free_port()),
        "PERGAMON_METRICS_PORT": "0",
        "PERGAMON_DATA_DIR": str(folder),
        "PERGAMON_MODELS_DIR": str(folder / "models"),
        "PERGAMON_PULL_MODELS": "false",
        "PERGAMON_EMBEDDING_MODELS": DENSE,
        "PERGAMON_RERANKER_MODELS": RERANKER,
        "PERGAMON_BACKEND": "fake",
        "PERGAMON_DRAIN_SECONDS": str(DRAIN_S),
        **more,
    }


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


def without_settings() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERGAMON_")}
    return {**inherited, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'clients' / 'python'}"}
