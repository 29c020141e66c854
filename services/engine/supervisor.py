"""Keeps an engine process running beside a server: starts it, waits until it answers, restarts it when it dies."""

# pyright: reportAttributeAccessIssue=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import contextlib
import logging
import os
import socket
import sys
from pathlib import Path

import grpc
from qdrant_client import grpc as q

from services.common.errors import Reason, Unavailable

_log = logging.getLogger("pergamon.engine.supervisor")

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 15.0
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 10.0
#: A process that lived this long was well: the next failure starts with the shortest back-off again.
HEALTHY_AFTER_S = 30.0
#: A running engine is asked this often whether it answers, waits as long for the reply, and is killed when it misses
#: this many in a row.
ALIVE_INTERVAL_S = 10.0
SILENT_PROBES_MAX = 3
_PROBE_INTERVAL_S = 0.05
_PROBE_TIMEOUT_S = 1.0
#: Exit codes after which another try cannot help while the cause is there (see `services.engine.__main__`).
_EXIT_MEANINGS = {3: "its data folder is in use by another engine", 4: "its data folder or port cannot be used"}


class EngineSupervisor:
    """Owns one engine process.

    The port is chosen once (`port=0`: a free one) and kept over restarts, so that clients reconnect by themselves. The
    process stops with this one, even when this one is killed.
    """

    def __init__(
        self,
        data_folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        start_deadline_s: float = START_DEADLINE_S,
        alive_interval_s: float = ALIVE_INTERVAL_S,
    ) -> None:
        self._folder = data_folder
        self._host = host
        self._port = port
        self._start_deadline_s = start_deadline_s
        self._alive_interval_s = alive_interval_s
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._closing = False
        self.restarts = 0

    @property
    def target(self) -> str:
        """Where the engine listens, as `host:port`; known once `start` was called."""
        return f"{self._host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The engine's process id now, None while it is down."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the engine and wait until it serves. Unavailable when it exits, or is not up in time."""
        self._port = self._port or _free_port(self._host)
        try:
            await self._spawn()
        except BaseException:
            await self._terminate()
            raise
        self._watcher = asyncio.create_task(self._keep_running())

    async def aclose(self) -> None:
        """Stop the engine: it drains, flushes and closes; killed if that takes more than 15 s."""
        self._closing = True
        if self._watcher:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            self._watcher = None
        await self._terminate()

    async def _spawn(self) -> None:
        command = ["-m", "services.engine", "--data-dir", str(self._folder), "--host", self._host]
        command += ["--port", str(self._port), "--parent-pid", str(os.getpid())]
        command += ["--log-level", logging.getLevelName(_log.getEffectiveLevel())]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, cwd=_package_root()
        )
        try:
            async with asyncio.timeout(self._start_deadline_s):
                await self._until_serving(self._process)
        except TimeoutError as error:
            raise Unavailable(
                f"the vector engine was not up within {self._start_deadline_s:g} s", reason=Reason.INDEX_UNAVAILABLE
            ) from error

    async def _until_serving(self, process: asyncio.subprocess.Process) -> None:
        async with grpc.aio.insecure_channel(self.target, options=[("grpc.max_reconnect_backoff_ms", 200)]) as channel:
            stub = q.QdrantStub(channel)
            while process.returncode is None:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    reply: q.HealthCheckReply = await stub.HealthCheck(q.HealthCheckRequest(), timeout=_PROBE_TIMEOUT_S)
                    if reply.commit == str(process.pid):  # else something older still holds the port
                        return
                await asyncio.sleep(_PROBE_INTERVAL_S)
        cause = _EXIT_MEANINGS.get(process.returncode, f"exit code {process.returncode}")
        raise Unavailable(f"the vector engine did not start: {cause}", reason=Reason.INDEX_UNAVAILABLE)

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = BACKOFF_FIRST_S
        while not self._closing:
            process = self._process
            assert process is not None
            started = loop.time()
            code = await self._until_ended(process)
            if loop.time() - started >= HEALTHY_AFTER_S:
                backoff_s = BACKOFF_FIRST_S
            _log.warning("engine process ended with code %s; restarting in %.1f s", code, backoff_s)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
            self.restarts += 1
            try:
                await self._spawn()
            except Unavailable as error:
                _log.error("engine restart failed: %s", error.message)
                await self._terminate()

    async def _until_ended(self, process: asyncio.subprocess.Process) -> int:
        """Wait for the process's end, and end it if it stops answering. Returns its exit code."""
        silent = 0
        async with grpc.aio.insecure_channel(self.target) as channel:
            stub = q.QdrantStub(channel)
            while True:
                with contextlib.suppress(TimeoutError):
                    return await asyncio.wait_for(process.wait(), self._alive_interval_s)
                try:
                    await stub.HealthCheck(q.HealthCheckRequest(), timeout=self._alive_interval_s)
                    silent = 0
                except grpc.aio.AioRpcError:
                    silent += 1
                if silent >= SILENT_PROBES_MAX and process.returncode is None:
                    _log.error("engine process does not answer: killing it")
                    process.kill()

    async def _terminate(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_DEADLINE_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _package_root() -> Path:
    """The folder that holds the `services` package, so that the child finds it wherever the parent was started."""
    return Path(__file__).resolve().parents[2]
