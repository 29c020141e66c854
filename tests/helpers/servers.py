"""Runs `python -m services.NAME` for tests, told by environment variables as in a deployment."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.helpers.models import DENSE, RERANKER

ROOT = Path(__file__).parents[2]
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


def without_settings() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERGAMON_")}
    return {**inherited, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'clients' / 'python'}"}
