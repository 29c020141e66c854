"""`pergamon up`: all four services in one process, on one port, until it is told to stop."""

import asyncio
import os

import click

from services.common import logs
from services.common.main import CANNOT_GO_ON
from services.launch.output import errors
from services.launch.session import Options, RunningServer, announce, find_running, withdraw


def register(cli: click.Group) -> None:
    cli.add_command(up)


@click.command()
@click.option("--host", default=None, help="Address to listen on (default 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="Port to listen on (default 7700).")
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=None, help="Prometheus (default 9700, 0: off).")
@click.pass_obj
def up(options: Options, host: str | None, port: int | None, metrics_port: int | None) -> None:
    """Run everything in one process: gRPC on one port, an embedded vector engine beside it."""
    given = {"host": host, "port": port, "metrics_port": metrics_port}
    settings = options.settings(**{name: value for name, value in given.items() if value is not None})
    logs.configure(settings.log_level, settings.log_format)

    from services.launch.all_in_one import AllInOne  # everything there is: only where it is needed

    async def run() -> None:
        running = await find_running(settings.data_dir)
        if running is not None:
            raise click.ClickException(f"process {running.pid} already serves this data folder")
        server = AllInOne(settings)
        await server.start()
        announce(settings.data_dir, RunningServer(pid=os.getpid(), target=server.local_target))
        try:
            errors.print(f"Pergamon is ready at [bold]{server.target}[/bold] (stop with Ctrl-C)")
            await server.wait_for_signal()
        finally:
            withdraw(settings.data_dir)
            await server.stop()
        if server.failure:
            errors.print(f"It cannot go on: {server.failure}", markup=False)
            raise click.exceptions.Exit(CANNOT_GO_ON)

    asyncio.run(run())
