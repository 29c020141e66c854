"""The main function that the servers share, as processes: how they stop, and how they say that they cannot start."""

import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1 import embedder_pb2_grpc as stubs

from tests.helpers.servers import ROOT, Server, settings_in, without_settings


def batch(name: str) -> pb.EmbedStreamRequest:
    return pb.EmbedStreamRequest(id=name, request=pb.EmbedRequest(texts=["w1"], dense=pb.DenseOutput()))


@pytest.fixture
def embedder(home: Path) -> Iterator[Server]:
    server = Server("embedder", settings_in(home))
    try:
        yield server
    finally:
        server.kill()


def test_server_when_it_is_told_to_stop_then_the_stream_in_work_is_served_to_its_end(embedder: Server) -> None:
    embedder.wait_until_ready()
    asked: queue.SimpleQueue[pb.EmbedStreamRequest | None] = queue.SimpleQueue()
    with grpc.insecure_channel(embedder.target) as channel:
        health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""), timeout=60)
        assert next(health).status == health_pb2.HealthCheckResponse.SERVING
        replies = stubs.EmbedderServiceStub(channel).EmbedStream(iter(asked.get, None), timeout=60)
        asked.put(batch("before"))
        assert next(replies).id == "before"
        embedder.process.send_signal(signal.SIGTERM)
        assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
        asked.put(batch("after"))
        assert next(replies).response.reports[0].token_count == 3
        asked.put(None)
        assert [*replies] == []
        assert embedder.process.wait(timeout=60) == 0


def test_server_when_it_is_told_to_stop_while_it_starts_then_it_leaves_with_0(embedder: Server) -> None:
    assert embedder.stop_while_starting() == 0


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PERGAMON_MAX_TEXTS", "0", "PERGAMON_MAX_TEXTS"),
        ("PERGAMON_HOST", "0.0.0.0", "PERGAMON_API_KEYS_FILE"),
        ("PERGAMON_SERVICE_TOKEN_FILE", "/no/such/file", "/no/such/file"),
        ("PERGAMON_EMBEDDING_MODELS", "no-such-model", "no-such-model"),
    ],
)
def test_server_when_it_cannot_start_then_it_says_why_and_leaves_with_2(
    home: Path, variable: str, value: str, said: str
) -> None:
    environment = settings_in(home) | {variable: value}
    done = _run_to_the_end(environment)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_server_when_its_port_is_taken_then_it_leaves_with_2(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = _run_to_the_end(settings_in(home) | {"PERGAMON_PORT": str(taken.getsockname()[1])})
    assert done.returncode == 2
    assert "cannot_start" in done.stderr


def test_server_when_a_setting_is_wrong_then_the_others_are_not_printed(home: Path) -> None:
    environment = settings_in(home) | {
        "PERGAMON_CATALOG_URL": "postgresql://user:hunter2@host/name",
        "PERGAMON_TLS_CERT_FILE": "/cert",
    }
    done = _run_to_the_end(environment, "ingestor")
    assert done.returncode == 2
    assert "PERGAMON_TLS_KEY_FILE" in done.stderr
    assert "hunter2" not in done.stderr


def _run_to_the_end(environment: dict[str, str], name: str = "embedder") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", f"services.{name}"],
        cwd=ROOT,
        env={**without_settings(), **environment},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
