"""The edge of every engine method: whatever goes wrong inside becomes a gRPC status here, never a traceback."""

import functools
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc

from services.engine.errors import EngineError, from_edge

Servicer = TypeVar("Servicer")
Request = TypeVar("Request")
Reply = TypeVar("Reply")
Context = grpc.aio.ServicerContext[Any, Any]

_log = logging.getLogger("pergamon.engine")


def method(
    call: Callable[[Servicer, Request], Awaitable[Reply]],
) -> Callable[[Servicer, Request, Context], Awaitable[Reply]]:
    """Turn `async def call(self, request)` into a servicer method that answers failures with a status.

    After a panic of the Rust side its locks cannot be trusted: the process is told to stop, and its supervisor starts
    it anew.
    """

    @functools.wraps(call)
    async def serve(self: Servicer, request: Request, context: Context) -> Reply:
        try:
            return await call(self, request)
        except EngineError as error:
            failure = error
        except Exception as error:  # qdrant-edge raises plain Exception; this is the RPC edge
            failure = from_edge(error)
            if failure.code is grpc.StatusCode.INTERNAL:
                _log.exception("%s failed", call.__name__)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of pyo3, which cannot be imported
                raise
            _log.critical("the engine panicked in %s: restarting to recover from the log", call.__name__, exc_info=True)
            os.kill(os.getpid(), signal.SIGTERM)
            failure = EngineError(grpc.StatusCode.INTERNAL, "Service internal error: the engine panicked")
        await context.abort(failure.code, failure.message)
        raise AssertionError  # abort always raises

    return serve
