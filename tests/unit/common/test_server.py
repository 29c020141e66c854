"""The server builder: health that follows the service, reflection, TLS, and a refusal to be exposed without keys."""

import subprocess
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1 import embedder_pb2_grpc as stubs

from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import App, Binding, GrpcServer
from services.common.settings import ServerSettings

NAME = pb.DESCRIPTOR.services_by_name["EmbedderService"].full_name


def server_of(settings: ServerSettings, ready: list[bool]) -> GrpcServer:
    async def is_ready() -> bool:
        if not ready[0]:
            raise RuntimeError("device lost")
        return True

    binding = Binding(
        name=NAME,
        register=lambda s: stubs.add_EmbedderServiceServicer_to_server(stubs.EmbedderServiceServicer(), s),
        ready=is_ready,
    )
    edge = Edge(authenticator=Authenticator.open_to_all(), metrics=Metrics(), clock=SystemClock())
    return GrpcServer(settings=settings, edge=edge, apps=[App(bindings=(binding,))])


async def health_of(channel: grpc.aio.Channel, service: str) -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


async def test_health_when_the_service_breaks_and_mends_then_it_says_so() -> None:
    ready = [True]
    server = server_of(ServerSettings(port=0, metrics_port=0, drain_seconds=0), ready)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        assert await health_of(channel, NAME) == health_pb2.HealthCheckResponse.SERVING
        ready[0] = False
        await server.check_health()
        assert await health_of(channel, NAME) == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await health_of(channel, "") == health_pb2.HealthCheckResponse.NOT_SERVING
        ready[0] = True
        await server.check_health()
        assert await health_of(channel, "") == health_pb2.HealthCheckResponse.SERVING
    await server.stop()


async def test_server_when_the_port_is_taken_then_the_second_one_fails() -> None:
    first = server_of(ServerSettings(port=0, metrics_port=0, drain_seconds=0), [True])
    await first.start()
    second = server_of(ServerSettings(port=first.port, metrics_port=0, drain_seconds=0), [True])
    with pytest.raises(RuntimeError, match=str(first.port)):
        await second.start()
    await second.stop()
    await first.stop()


async def test_server_with_client_ca_when_no_certificate_is_shown_then_the_call_fails(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    settings = ServerSettings(
        port=0, metrics_port=0, drain_seconds=0,
        tls_cert_file=tmp_path / "cert.pem", tls_key_file=tmp_path / "key.pem",
        tls_client_ca_file=tmp_path / "cert.pem",
    )  # fmt: skip
    server = server_of(settings, [True])
    await server.start()
    cert, key = (tmp_path / "cert.pem").read_bytes(), (tmp_path / "key.pem").read_bytes()
    known = grpc.ssl_channel_credentials(cert, key, cert)
    async with grpc.aio.secure_channel(f"localhost:{server.port}", known) as channel:
        assert await health_of(channel, NAME) == health_pb2.HealthCheckResponse.SERVING
    unknown = grpc.ssl_channel_credentials(cert)
    async with grpc.aio.secure_channel(f"localhost:{server.port}", unknown) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await health_of(channel, NAME)
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    await server.stop()


def make_certificate(folder: Path) -> None:
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
            "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"),
        ],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "::", "example.org"])
def test_settings_when_exposed_without_keys_then_they_are_refused(host: str) -> None:
    with pytest.raises(ValueError, match="API keys"):
        ServerSettings(host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_settings_when_on_loopback_without_keys_then_they_are_accepted(host: str) -> None:
    assert ServerSettings(host=host).host == host
