"""Which server `pergamon bench` loads: the one named, the all-in-one that runs, or one started in a process of its own.

Other commands start theirs in their own process; here the generator's work would then be the server's too.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator

import click

from services.launch.output import errors
from services.launch.session import Options, find_running

_START_TIMEOUT_S = 600.0  # the first start fetches models
_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.1


@contextlib.asynccontextmanager
async def server_of(options: Options) -> AsyncGenerator[str]:
    """The target that `options` mean; one started for it is stopped at the end."""
    if options.server:
        yield options.server
        return
    data_dir = options.settings().data_dir
    running = await find_running(data_dir)
    if running is not None:
        yield running.target
        return
    errors.print("[dim]no server is running; starting one for this measurement[/dim]")
    command = ["-m", "services.launch", "--data-dir", str(data_dir), "up", "--port", "0", "--metrics-port", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            while (running := await find_running(data_dir)) is None:
                if process.returncode is not None:
                    raise click.ClickException(
                        f"the server ended with status {process.returncode} as it started: run `pergamon up` to see why"
                    )
                await asyncio.sleep(_POLL_S)
        yield running.target
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
