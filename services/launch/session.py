"""How a command reaches a server: the one named, the all-in-one that runs, or one started for the command."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import grpc
from pergamon.client import AsyncClient

from services.common import logs
from services.common.health import answers
from services.launch.output import errors
from services.launch.settings import UpSettings

T = TypeVar("T")

_RUNNING_FILE = "running.json"
#: One that is busy answers late; one that is gone is refused at once.
_ANSWER_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Common options of all commands. `server` is host:port, empty to look for one or start one."""

    server: str = ""
    api_key: str = ""
    data_dir: Path | None = None

    def settings(self, **more: object) -> UpSettings:
        values: dict[str, object] = dict(more)
        if self.data_dir is not None:
            values["data_dir"] = self.data_dir
        return UpSettings(**values)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """What an all-in-one leaves in its data folder while it runs."""

    pid: int
    target: str


def announce(data_dir: Path, server: RunningServer) -> None:
    data_dir.mkdir(parents=True, exist_ok=True)
    temporary = data_dir / f"{_RUNNING_FILE}.{os.getpid()}"
    temporary.write_text(json.dumps(asdict(server)), encoding="utf-8")
    temporary.replace(data_dir / _RUNNING_FILE)


def withdraw(data_dir: Path) -> None:
    (data_dir / _RUNNING_FILE).unlink(missing_ok=True)


async def find_running(data_dir: Path) -> RunningServer | None:
    """The all-in-one of this data folder, if it answers; a file left by a killed one counts for nothing."""
    try:
        server = RunningServer(**json.loads((data_dir / _RUNNING_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return server if _lives(server.pid) and await _answers(server.target) else None


@contextlib.asynccontextmanager
async def connect(options: Options) -> AsyncGenerator[AsyncClient]:
    """A client for the server that `options` mean. One started for the command ends with it."""
    if options.server:
        async with AsyncClient(options.server, api_key=options.api_key or None) as client:
            yield client
        return
    settings = options.settings()
    running = await find_running(settings.data_dir)
    if running is not None:
        async with AsyncClient(running.target, api_key=options.api_key or None) as client:
            yield client
        return
    from services.launch.all_in_one import AllInOne  # everything there is: only where it is needed

    errors.print("[dim]no server is running; starting one for this command[/dim]")
    server = AllInOne(options.settings(port=0, metrics_port=0, log_level="WARNING"))
    await server.start()
    try:
        async with AsyncClient(server.local_target, api_key=options.api_key or None) as client:
            yield client
    finally:
        await server.stop()


def with_client(options: Options, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Run `work` with a client for the server that `options` mean."""
    logs.configure("WARNING", "text")

    async def run() -> T:
        async with connect(options) as client:
            return await work(client)

    return asyncio.run(run())


def _lives(pid: int) -> bool:
    """Whether the process is there: another server may have taken the address of one that was killed."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _answers(target: str) -> bool:
    async with grpc.aio.insecure_channel(target) as channel:
        return await answers(channel, timeout_s=_ANSWER_TIMEOUT_S)
