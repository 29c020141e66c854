"""A server whose device is gone: callers are told, health says so, and the process ends for another to start."""

import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1 import embedder_pb2_grpc as stubs

from services.common.main import CANNOT_GO_ON
from tests.helpers.servers import ROOT, free_port, settings_in, without_settings

#: The embedder on a device that breaks for good at the token of `w7`.
_BREAKS = """
import sys
from services.common.main import run
from services.embedder.settings import EmbedderSettings
from services.embedder.standalone import opened
from services.inference.backends.fake import FakeBackend
from services.inference.errors import DeviceLost

works = FakeBackend.run

def run_or_break(self, batch):
    if (batch.ids == 11).any():
        raise DeviceLost("gone")
    return works(self, batch)

FakeBackend.run = run_or_break
sys.exit(run(EmbedderSettings, opened))
"""


def _ask(text: str) -> pb.EmbedRequest:
    return pb.EmbedRequest(texts=[text], dense=pb.DenseOutput())


def test_server_when_its_device_is_lost_then_callers_are_told_and_the_process_ends_with_3(home: Path) -> None:
    port = free_port()
    environment = settings_in(home) | {"PERGAMON_PORT": str(port), "PERGAMON_METRICS_PORT": "0"}
    process = subprocess.Popen(
        [sys.executable, "-c", _BREAKS], cwd=ROOT, env={**without_settings(), **environment}, stderr=subprocess.PIPE
    )
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=30)
            health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""), timeout=60)
            assert next(health).status == health_pb2.HealthCheckResponse.SERVING
            embedder = stubs.EmbedderServiceStub(channel)
            assert not embedder.Embed(_ask("w1"), timeout=10).reports[0].HasField("error")
            broken = embedder.Embed(_ask("w7"), timeout=10).reports[0].error
            assert broken.reason == "DEVICE_LOST"
            assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
            with pytest.raises(grpc.RpcError) as refused:
                embedder.Embed(_ask("w2"), timeout=10)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
        started = time.monotonic()
        assert process.wait(timeout=30) == CANNOT_GO_ON
        assert time.monotonic() - started < 15
        assert b"was lost" in process.stderr.read()
    finally:
        process.kill()
        process.wait()
