"""Servers as child processes: ours, by its settings, and any other that says on a port that it is ready."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

ROOT = Path(__file__).resolve().parents[1]
_READY_TIMEOUT_S, _END_TIMEOUT_S, _POLL_S = 300.0, 30.0, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    pid: int
    port: int

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(
    arguments: Sequence[str], port: int, ready: Callable[[], bool], *,
    python: Path | str = sys.executable, environment: Mapping[str, str] | None = None,
) -> Iterator[Running]:  # fmt: skip
    """`python ARGUMENTS` until the end of the block, from when `ready` holds. Its output is shown only if it fails."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [str(python), *arguments], cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + _READY_TIMEOUT_S
            while not ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"{' '.join(arguments)} does not serve:\n{log.read()[-3000:]}")
                time.sleep(_POLL_S)
            yield Running(pid=process.pid, port=port)
        finally:
            _stop(process)


@contextlib.contextmanager
def own_server(module: str, arguments: Sequence[str] = (), **settings: str) -> Iterator[Running]:
    """`python -m MODULE` with settings as `embedding_models="..."`; serving when it says SERVING."""
    port = free_port()
    values = {"port": str(port), "metrics_port": "0", "log_level": "ERROR", "drain_seconds": "1", **settings}
    environment = {f"PERGAMON_{name.upper()}": value for name, value in values.items()}
    with serving(["-m", module, *arguments], port, lambda: serves(port), environment=environment) as running:
        yield running


def serves(port: int) -> bool:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, contextlib.suppress(grpc.RpcError):
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2.0)
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
    return False


def answers_http(url: str) -> bool:
    with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=2) as reply:
        return bool(reply.status == 200)
    return False


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
