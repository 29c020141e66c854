"""Runs the engine as a process for tests that share one."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc


@contextmanager
def running_engine(folder: Path) -> Iterator[str]:
    """An engine over `folder`; yields its address and demands a clean exit in the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-m", "services.engine", "--data-dir", str(folder), "--port", port]
    process = subprocess.Popen([*command, "--parent-pid", str(os.getpid())], cwd=Path(__file__).parents[3])
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        code = process.wait(timeout=30)
    assert code == 0
