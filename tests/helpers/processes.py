"""The product as processes: started by its command line, found in the process table, killed without warning."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    pid: int
    target: str


def find_engine(data_dir: Path) -> Engine | None:
    """The engine process over this data folder, if one runs."""
    folder = str(data_dir / "index")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\x00")
            if "services.engine" in words and folder in words:
                return Engine(pid=int(entry.name), target=f"127.0.0.1:{words[words.index('--port') + 1]}")
    return None


def engine_of(data_dir: Path) -> Engine:
    found = find_engine(data_dir)
    assert found is not None, f"no engine runs over {data_dir}"
    return found


@dataclass(kw_only=True)
class Server:
    """`pergamon up` over `data_dir`, which can be killed and started again."""

    data_dir: Path
    environment: Mapping[str, str]
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.data_dir / "server.log").read_text(errors="replace")

    def start(self, *, within_s: float = 60.0) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.port = free_port()  # a new one each time: gRPC remembers for a while that the old one refused
        command = [sys.executable, "-c", "from services.launch.cli import main; main()"]
        command += ["--data-dir", str(self.data_dir), "up", "--port", str(self.port), "--metrics-port", "0"]
        with (self.data_dir / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **self.environment}, stdout=log, stderr=log
            )
        deadline = time.monotonic() + within_s
        while not serves(self.target):
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}:\n{self.log[-3000:]}"
            assert time.monotonic() < deadline, f"the server was not up within {within_s:g} s:\n{self.log[-3000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9, and nothing that would soften it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_engine(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(engine_of(self.data_dir).pid, signal.SIGKILL)

    def stop(self) -> int:
        """As an operator stops it; its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=40)


def serves(target: str) -> bool:
    """Whether a server there says that all its services can work."""
    with grpc.insecure_channel(target) as channel, suppress(grpc.RpcError):
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=1.0)
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
