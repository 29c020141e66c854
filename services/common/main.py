"""What the main functions of the servers share: settings, logs, edge, one app served until a signal, the way out."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TypeVar

from pydantic import ValidationError

from services.common import logs
from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.errors import ServiceError
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import App, GrpcServer
from services.common.settings import ServerSettings

#: Exit code of a server that cannot start: what is wrong is outside it, and was said on standard error.
CANNOT_START = 2
#: Exit code of a server that ended because it could not go on, as when its accelerator was lost: start another one.
CANNOT_GO_ON = 3

Settings = TypeVar("Settings", bound=ServerSettings)

#: Opens what an app needs by its settings, builds the app, and closes what it opened at the end.
OpenApp = Callable[[Settings, Edge], AbstractAsyncContextManager[App]]


def run(read_settings: Callable[[], Settings], open_app: OpenApp[Settings]) -> int:
    """Serve one app until SIGTERM or SIGINT, then drain. Returns the exit code: 0, 2 where it cannot start, 3 where it
    cannot go on."""
    try:
        settings = read_settings()
        logs.configure(settings.log_level, settings.log_format)
        edge = edge_of(settings)
    except (ValueError, OSError) as error:
        print(f"cannot start: {without_values(error)}", file=sys.stderr)  # noqa: T201 - logging is set up by what could not be read
        return CANNOT_START
    try:
        asyncio.run(_serve(settings, edge, open_app))
    except (ServiceError, OSError, ValueError, RuntimeError) as error:
        logs.get(__name__).error("cannot_start", kind=type(error).__name__, reason=str(error))
        return CANNOT_START
    return CANNOT_GO_ON if edge.failure else 0


def edge_of(settings: ServerSettings) -> Edge:
    """The edge of a server that runs alone, with metrics of its own.

    Raises ValueError or OSError where the files of API keys or of the service token cannot be used.
    """
    token = settings.service_token().get_secret_value()
    return Edge(
        authenticator=Authenticator.load(settings.api_keys_file, token)
        if settings.api_keys_file
        else Authenticator.open_to_all(),
        metrics=Metrics(),
        clock=SystemClock(),
        default_timeout_s=settings.default_timeout_s,
        max_calls=settings.max_calls,
    )


async def _serve(settings: Settings, edge: Edge, open_app: OpenApp[Settings]) -> None:
    _cancel_at_signal()
    # The first signal ends whatever is awaited, also while models load; a second one cuts the drain short.
    with contextlib.suppress(asyncio.CancelledError):
        async with AsyncExitStack() as closing:
            app = await closing.enter_async_context(open_app(settings, edge))
            server = GrpcServer(settings=settings, edge=edge, apps=[app])
            closing.push_async_callback(server.stop)
            await server.start()
            edge.metrics.serve(settings.host, settings.metrics_port)
            await edge.failed.wait()
            logs.get(__name__).error("cannot_go_on", reason=edge.failure)


def _cancel_at_signal() -> None:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a server must be served by a task")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)


def without_values(error: Exception) -> str:
    """What is wrong, without the values that were given: other settings than the wrong one may be secrets."""
    if not isinstance(error, ValidationError):
        return str(error)
    prefix = "PERGAMON_"
    lines = [
        f"  {prefix + '_'.join(map(str, entry['loc'])).upper() if entry['loc'] else 'settings'}: {entry['msg']}"
        for entry in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return "\n".join(["the settings are wrong:", *lines])
