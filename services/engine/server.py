"""The engine's server: one event loop, one data folder, one port."""

# pyright: reportAttributeAccessIssue=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from qdrant_client import grpc as q

from services.engine.collections_servicer import CollectionsServicer, RootServicer
from services.engine.durability import Durability
from services.engine.points_servicer import PointsServicer, register
from services.engine.store import Store
from services.engine.turns import Turns

MAX_MESSAGE_BYTES = 128 * 1024 * 1024
MAX_CALLS_AT_ONCE = 256
DRAIN_S = 5.0
PARENT_CHECK_S = 1.0
_PR_SET_PDEATHSIG = 1

_log = logging.getLogger("pergamon.engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Where the engine keeps its data and listens. `parent_pid`: the process whose end ends this one, 0 for none."""

    data_folder: Path
    host: str
    port: int
    parent_pid: int = 0


async def serve(options: EngineOptions) -> None:
    """Serve until SIGTERM, SIGINT or the parent's end; then drain, flush and close.

    Raises `FolderInUse` when another engine has the folder, OSError when the port or the folder cannot be had.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.parent_pid:
        _die_with_parent()
    store = Store(options.data_folder)
    try:
        await _serve_store(store, options, stop)
    finally:
        store.close()


async def _serve_store(store: Store, options: EngineOptions, stop: asyncio.Event) -> None:
    turns = Turns()
    server = grpc.aio.server(
        maximum_concurrent_rpcs=MAX_CALLS_AT_ONCE,
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ],
    )
    state = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    q.add_CollectionsServicer_to_server(CollectionsServicer(store, turns), server)
    register(PointsServicer(store, turns), server)
    q.add_QdrantServicer_to_server(RootServicer(), server)
    try:
        port = server.add_insecure_port(f"{options.host}:{options.port}")
    except RuntimeError as error:
        raise OSError(f"cannot listen on {options.host}:{options.port}: the port is taken or not allowed") from error
    # What exists by now lives as long as the process: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    await server.start()
    await state.set("", health_pb2.HealthCheckResponse.SERVING)
    _log.info("engine serves on %s:%d, %d collections", options.host, port, len(store.names()))
    tasks = [asyncio.create_task(Durability(store, turns).run())]
    if options.parent_pid:
        tasks.append(asyncio.create_task(_watch_parent(options.parent_pid, stop)))
    try:
        await stop.wait()
    finally:
        await state.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        await server.stop(DRAIN_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch_parent(parent_pid: int, stop: asyncio.Event) -> None:
    """A second line behind PR_SET_PDEATHSIG, which other systems than Linux lack."""
    while os.getppid() == parent_pid:  # noqa: ASYNC110 - nothing signals this
        await asyncio.sleep(PARENT_CHECK_S)
    _log.info("parent process is gone: stopping")
    stop.set()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
