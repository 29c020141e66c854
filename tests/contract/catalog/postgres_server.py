"""A PostgreSQL server for the tests, from the binaries that a wheel carries: as root it runs as `nobody`."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_NOBODY = 65534
_START_S = 30.0


@contextlib.contextmanager
def postgres_server(installation: Path) -> Iterator[str]:
    """Yields the address of its database `postgres`. `installation` holds bin/, lib/ and share/."""
    folder = Path(tempfile.mkdtemp(prefix="pergamon-pg-"))
    try:
        # The server refuses to run as root, and `nobody` cannot look into root's home.
        user = _NOBODY if os.geteuid() == 0 else None
        if user is not None:
            if not _reachable(installation, user):
                installation = Path(shutil.copytree(installation, folder / "postgresql", symlinks=True))
            os.chmod(folder, 0o755)
        for name in ("cluster", "socket"):
            (folder / name).mkdir(mode=0o700)
            if user is not None:
                os.chown(folder / name, user, -1)
        process = _start(installation / "bin", folder, user)
        try:
            yield f"postgresql://postgres@/postgres?host={folder / 'socket'}"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=_START_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reachable(installation: Path, user: int) -> bool:
    program = str(installation / "bin" / "postgres")
    probe = subprocess.run(["test", "-x", program], user=user, group=user, extra_groups=[], check=False)
    return probe.returncode == 0


def _start(programs: Path, folder: Path, user: int | None) -> subprocess.Popen[bytes]:
    identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    cluster, sockets = folder / "cluster", folder / "socket"
    subprocess.run(
        [programs / "initdb", "-D", cluster, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "-N"],
        check=True,
        capture_output=True,
        cwd=folder,
        **identity,
    )
    flags = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=40", "shared_buffers=32MB"]
    options = [part for flag in flags for part in ("-c", flag)]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [programs / "postgres", "-D", cluster, "-k", sockets, "-h", "", *options],
        stdout=log,
        stderr=log,
        cwd=folder,
        **identity,
    )
    log.close()
    deadline = time.monotonic() + _START_S
    while not _listens(sockets / ".s.PGSQL.5432"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
        time.sleep(0.05)
    return process


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
