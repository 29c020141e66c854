"""The embedder behind its own gRPC server and behind Ray Serve, told the same; each is started once a session."""

import contextlib
import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from tests.contract.index.engine import running_engine
from tests.contract.serving.manifest import ray_environment
from tests.helpers.keys import write_keys
from tests.helpers.models import install_tiny_models
from tests.helpers.servers import ROOT, Server, free_port, settings_in, without_settings

APPLICATIONS = ("embedder", "reranker", "ingestor", "retriever")
#: So few that a test can fill the server.
MAX_CALLS = 4
#: Nothing is sent to anybody, and no token is written into the user's home.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
_MESSAGE_BYTES = 64 << 20
_MARK = "PERGAMON_TEST_CLUSTER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A server to hold to the contract."""

    kind: str
    target: str


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("serving")
    install_tiny_models(folder / "models")
    return settings_in(folder, PERGAMON_MAX_CALLS=str(MAX_CALLS), **write_keys(folder))


@pytest.fixture(scope="session")
def grpc_server(told: dict[str, str]) -> Iterator[Serving]:
    server = Server("embedder", told)
    try:
        server.wait_until_ready()
        yield Serving(kind="grpc", target=server.target)
    finally:
        server.kill()


@pytest.fixture(scope="session")
def ray_serve(told: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """All four applications on one Ray, over an engine process."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'pergamon-server[ray]'")
    folder = tmp_path_factory.mktemp("ray")
    target = f"127.0.0.1:{free_port()}"
    with running_engine(folder / "engine") as qdrant:
        addresses = {
            "PERGAMON_QDRANT_URL": qdrant,
            "PERGAMON_EMBEDDER_TARGET": target,
            "PERGAMON_RERANKER_TARGET": target,
        }
        with _running_cluster(target, {**told, **addresses}, folder / "stderr"):
            yield Serving(kind="ray", target=target)


@contextlib.contextmanager
def _running_cluster(target: str, settings: dict[str, str], log: Path) -> Iterator[None]:
    mark = secrets.token_hex(8)
    with log.open("wb") as errors:
        cluster = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.serving.ray_cluster", target.rpartition(":")[2], *APPLICATIONS],
            cwd=ROOT,
            env={**without_settings(), **settings, **ray_environment(), **_QUIET, _MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    try:
        assert b"ready" in cluster.stdout.read1(), log.read_text()
        yield
    finally:
        cluster.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            cluster.wait(timeout=30)
        end_processes_with(mark)
        cluster.wait(timeout=10)


@pytest.fixture(params=["grpc_server", "ray_serve"], ids=["grpc", "ray"])
def serving(request: pytest.FixtureRequest) -> Serving:
    return request.getfixturevalue(request.param)


@pytest.fixture
def channel(serving: Serving) -> Iterator[grpc.Channel]:
    sizes = [("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.max_send_message_length", _MESSAGE_BYTES)]
    with grpc.insecure_channel(serving.target, options=sizes) as opened:
        yield opened


def end_processes_with(mark: str) -> None:
    """Ray's own processes may outlive its shutdown: those that carry this mark in their environment are ended."""
    deadline = time.monotonic() + 10
    while left := _processes_with(mark):
        number = signal.SIGTERM if time.monotonic() < deadline - 5 else signal.SIGKILL
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        assert time.monotonic() < deadline, f"processes {left} do not end"
        time.sleep(0.1)


def _processes_with(mark: str) -> list[int]:
    wanted = f"{_MARK}={mark}".encode()
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found
