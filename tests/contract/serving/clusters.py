"""Starts a local Ray in processes of its own, and ends every one of them."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.helpers.servers import ROOT, without_settings

#: Nothing is sent to anybody, and no token is written into the user's home.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
_MARK = "PERGAMON_TEST_CLUSTER"


@contextlib.contextmanager
def running_cluster(
    port: int, applications: Mapping[str, Mapping[str, Any]], environment: Mapping[str, str], log: Path
) -> Iterator[str]:
    """Until the end of the block. Yields the mark that all its processes carry; `processes_with` finds them."""
    mark = secrets.token_hex(8)
    with log.open("wb") as errors:
        cluster = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.serving.ray_cluster", str(port), json.dumps(applications)],
            cwd=ROOT,
            env={**without_settings(), **environment, **_QUIET, _MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    try:
        assert b"ready" in cluster.stdout.read1(), log.read_text()
        yield mark
    finally:
        cluster.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            cluster.wait(timeout=30)
        _end_processes_with(mark)
        cluster.wait(timeout=10)


def processes_with(mark: str) -> list[int]:
    wanted = f"{_MARK}={mark}".encode()
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def _end_processes_with(mark: str) -> None:
    """Ray's own processes may outlive its shutdown: those that carry this mark in their environment are ended."""
    deadline = time.monotonic() + 10
    while left := processes_with(mark):
        number = signal.SIGTERM if time.monotonic() < deadline - 5 else signal.SIGKILL
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        assert time.monotonic() < deadline, f"processes {left} do not end"
        time.sleep(0.1)
