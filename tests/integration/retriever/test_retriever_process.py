"""`python -m services.retriever` as a process: it serves, and it ends when told to."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pergamon.retriever.v1 import retriever_pb2, retriever_pb2_grpc

from services.domain.ids import new_id
from tests.contract.index.engine import running_engine

ROOT = Path(__file__).parents[3]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@contextmanager
def running(folder: Path, port: str, **settings: str) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {
        **os.environ,
        "PERGAMON_PORT": port,
        "PERGAMON_METRICS_PORT": "0",
        "PERGAMON_DATA_DIR": str(folder),
        "PERGAMON_DRAIN_SECONDS": "0",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'clients' / 'python'}",
        **settings,
    }
    process = subprocess.Popen([sys.executable, "-m", "services.retriever"], cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_process_when_started_then_it_serves_and_ends_with_0_on_sigterm(tmp_path: Path):
    port = free_port()
    with (
        running_engine(tmp_path / "engine") as qdrant,
        running(tmp_path, port, PERGAMON_QDRANT_URL=qdrant) as process,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        grpc.channel_ready_future(channel).result(timeout=60)
        name = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"].full_name
        changes = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=name), timeout=60)
        assert any(change.status == health_pb2.HealthCheckResponse.SERVING for change in changes)
        stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Search(retriever_pb2.SearchRequest(query="q", knowledge_base_ids=[new_id("kb")]), timeout=10)
        assert reason_of(caught.value) == "KNOWLEDGE_BASE_NOT_FOUND"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


def test_process_when_a_setting_is_wrong_then_it_ends_with_2_at_once(tmp_path: Path):
    with running(tmp_path, free_port(), PERGAMON_MAX_SEARCHES="0") as process:
        assert process.wait(timeout=60) == 2


def reason_of(error: grpc.RpcError) -> str:
    (trailer,) = [value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin"]
    info = error_details_pb2.ErrorInfo()
    for detail in status_pb2.Status.FromString(trailer).details:
        detail.Unpack(info)
    return info.reason
