"""The engine as a process: what survives, who may open the folder, and when it ends."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from qdrant_client import AsyncQdrantClient
from qdrant_client import grpc as q

from services.common.errors import Reason, Unavailable
from services.engine import rpc
from services.engine.supervisor import EngineSupervisor
from services.index.connection import IndexConnection
from services.index.reader import IndexReader
from services.index.writer import IndexWriter
from tests.contract.index.builders import World, schema_of
from tests.integration.engine.conftest import client_of, make_collection, point

ROOT = Path(__file__).parents[3]


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


async def _until_down(pid: int) -> None:
    async with asyncio.timeout(20):
        while _is_running(pid):  # noqa: ASYNC110 - nothing signals this
            await asyncio.sleep(0.01)


async def test_points_when_acknowledged_and_the_engine_is_killed_then_they_are_there_after_the_restart(
    supervisor: EngineSupervisor, client: AsyncQdrantClient
) -> None:
    await make_collection(client)
    await client.create_payload_index("c", "n", "integer")
    acknowledged: set[int] = set()

    async def upload() -> None:
        for start in range(0, 1_000_000, 20):
            batch = [point(start + i) for i in range(20)]
            await client.upsert("c", batch, wait=True)
            acknowledged.update(p.id for p in batch)  # type: ignore[misc]

    task = asyncio.create_task(upload())
    while len(acknowledged) < 500:  # noqa: ASYNC110 - the upload runs on
        await asyncio.sleep(0.005)
    pid = supervisor.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(grpc.aio.AioRpcError):
        await task
    await _until_down(pid)
    connection = IndexConnection(supervisor.target)
    writer = IndexWriter(connection)
    assert await writer.knowledge_bases(schema_of("none"), timeout_s=30) == {}  # waits for the restart
    await connection.aclose()
    found, _ = await client.scroll("c", limit=100_000, with_payload=False)
    assert acknowledged <= {record.id for record in found}
    info = await client.get_collection("c")
    assert info.payload_schema["n"].points == len(found)
    assert supervisor.restarts == 1
    assert supervisor.pid not in (None, pid)


async def test_index_when_the_engine_is_killed_then_the_next_calls_reconnect(supervisor: EngineSupervisor) -> None:
    connection = IndexConnection(supervisor.target)
    world = World(IndexReader(connection), IndexWriter(connection), schema_of("restart"))
    await world.write(world.document(), "red apple")
    for _ in range(2):
        pid = supervisor.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await _until_down(pid)
        assert [hit.ordinal for hit in await world.keyword("apple")] == [0]
    await world.write(world.document(), "red apple")
    assert len(await world.keyword("apple")) == 2
    await connection.aclose()


async def test_engine_when_told_to_stop_then_it_ends_cleanly_and_everything_is_there_again(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    for expected in (0, 300, 300):
        supervisor = EngineSupervisor(folder)
        await supervisor.start()
        client = client_of(supervisor.target)
        if not await client.collection_exists("c"):
            await make_collection(client)
        assert (await client.count("c")).count == expected
        await client.upsert("c", [point(i) for i in range(300)])
        await client.close()
        pid = supervisor.pid
        assert pid is not None
        await supervisor.aclose()
        assert supervisor.pid is None
        await _until_down(pid)


async def test_start_when_the_folder_is_in_use_then_a_clear_error_and_the_first_engine_goes_on(
    supervisor: EngineSupervisor, client: AsyncQdrantClient, tmp_path: Path
) -> None:
    second = EngineSupervisor(tmp_path / "engine")
    with pytest.raises(Unavailable, match="in use by another engine") as caught:
        await second.start()
    assert caught.value.error_reason is Reason.INDEX_UNAVAILABLE
    assert second.pid is None
    assert (await client.get_collections()).collections == []


async def test_start_when_the_port_is_taken_then_a_clear_error(supervisor: EngineSupervisor, tmp_path: Path) -> None:
    second = EngineSupervisor(tmp_path / "other", port=int(supervisor.target.rpartition(":")[2]))
    with pytest.raises(Unavailable, match="cannot be used"):
        await second.start()


def test_main_when_the_folder_is_in_use_then_the_message_names_the_owner_and_no_traceback(tmp_path: Path) -> None:
    holder = (tmp_path / "engine.lock").open("a+")
    import fcntl

    fcntl.flock(holder, fcntl.LOCK_EX)
    holder.write("4711")
    holder.flush()
    command = [sys.executable, "-m", "services.engine", "--data-dir", str(tmp_path), "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "process 4711" in done.stderr
    assert "Traceback" not in done.stderr


async def test_engine_when_its_parent_is_killed_then_it_ends_too(tmp_path: Path) -> None:
    script = f"""
import asyncio, pathlib
from services.engine import rpc
from services.engine.supervisor import EngineSupervisor
async def main():
    supervisor = EngineSupervisor(pathlib.Path({str(tmp_path)!r}))
    await supervisor.start()
    print(supervisor.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert parent.stdout is not None
    engine_pid = int(await asyncio.wait_for(parent.stdout.readline(), 60))
    parent.kill()
    await parent.wait()
    await _until_down(engine_pid)


async def test_health_when_serving_then_both_health_calls_say_so(
    supervisor: EngineSupervisor, client: AsyncQdrantClient
) -> None:
    async with grpc.aio.insecure_channel(supervisor.target) as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert reply.status == health_pb2.HealthCheckResponse.SERVING
    assert (await client.info()).version == "1.19.0"


async def test_supervisor_when_the_engine_hangs_then_it_is_replaced(tmp_path: Path) -> None:
    supervisor = EngineSupervisor(tmp_path / "engine", alive_interval_s=0.2)
    await supervisor.start()
    pid = supervisor.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    await _until_down(pid)
    connection = IndexConnection(supervisor.target)
    assert await IndexWriter(connection).knowledge_bases(schema_of("none"), timeout_s=30) == {}
    assert supervisor.restarts == 1
    await connection.aclose()
    await supervisor.aclose()


async def test_compact_when_most_points_were_deleted_then_searches_answer_as_before(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    supervisor = EngineSupervisor(folder)
    await supervisor.start()
    client = client_of(supervisor.target)
    await make_collection(client)
    await client.create_payload_index("c", "n", "integer")
    await client.upsert("c", [point(i) for i in range(3_000)])
    await client.delete("c", points_selector=list(range(500, 3_000)))
    before = (await client.query_points("c", query=[1.0, 3.0, 0.0, 0.0], using="dense", limit=10)).points
    await client.close()
    await supervisor.aclose()

    command = [sys.executable, "-m", "services.engine", "--data-dir", str(folder), "--compact"]
    compacting = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    _, log = await asyncio.wait_for(compacting.communicate(), 120)
    assert compacting.returncode == 0
    assert b"compacted 1 collections: c" in log

    again = EngineSupervisor(folder)
    await again.start()
    client = client_of(again.target)
    after = (await client.query_points("c", query=[1.0, 3.0, 0.0, 0.0], using="dense", limit=10)).points
    assert [(p.id, p.score) for p in after] == [(p.id, pytest.approx(p.score)) for p in before]
    assert (await client.count("c")).count == 500
    assert list((await client.get_collection("c")).payload_schema) == ["n"]
    await client.upsert("c", [point(9_999)])
    assert (await client.count("c")).count == 501
    await client.close()
    await again.aclose()


class PanicException(BaseException):
    """Named as the exception of a Rust panic."""


async def test_method_when_the_engine_panics_then_internal_and_the_process_is_told_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))

    class Panicking(q.PointsServicer):
        @rpc.method
        async def Count(self, request: q.CountPoints) -> q.CountResponse:
            raise PanicException("poisoned at /src/secret.rs:1")

    server = grpc.aio.server()
    q.add_PointsServicer_to_server(Panicking(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await q.PointsStub(channel).Count(q.CountPoints(), timeout=10)
    await server.stop(0)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in (caught.value.details() or "")
    assert signals == [(os.getpid(), signal.SIGTERM)]
