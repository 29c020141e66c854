"""A replica without Ray: how streams of requests end, what a replica refuses, and what scaling becomes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from pergamon.ingestor.v1 import document_pb2 as pb
from pergamon.ingestor.v1 import document_pb2_grpc as stubs
from pydantic import ValidationError

from services.common.rpc import Edge
from services.common.server import App, Binding
from services.common.settings import ServerSettings
from services.launch.ray_replica import Handlers, Replica, calls_of
from services.launch.ray_scaling import IngestorScaling, RetrieverScaling, Scaling
from tests.helpers.keys import write_keys

#: Serve awaits `__del__`; the garbage collector, which calls it once more, does not.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'Replica.__del__' was never awaited")

SERVICE = pb.DESCRIPTOR.services_by_name["DocumentService"]


class Uploads(stubs.DocumentServiceServicer):
    """Answers an upload with the number of its messages."""

    def __init__(self) -> None:
        self.ready = True
        self.closed = False

    async def UploadDocument(self, request: AsyncIterator[Any], context: object) -> pb.UploadDocumentResponse:
        return pb.UploadDocumentResponse(job_id=str(len([message async for message in request])))

    def app(self) -> App:
        async def ready() -> bool:
            return self.ready

        async def aclose() -> None:
            self.closed = True

        register = lambda server: stubs.add_DocumentServiceServicer_to_server(self, server)  # noqa: E731
        return App(bindings=(Binding(name="uploads", register=register, ready=ready),), aclose=aclose)


class Requests:
    """A stream as Serve hands it over: after its messages it just ends."""

    def __init__(self, *, cancelled: bool) -> None:
        self._cancelled = cancelled

    async def __aiter__(self) -> AsyncGenerator[pb.UploadDocumentRequest]:
        yield pb.UploadDocumentRequest(data=b"a")
        yield pb.UploadDocumentRequest(data=b"b")

    def is_cancelled(self) -> bool:
        return self._cancelled


@calls_of(SERVICE, end_of_stream=None)
class UploadReplica(Replica[ServerSettings]):
    read_settings = ServerSettings
    servicer: ClassVar[Uploads]

    @staticmethod
    @asynccontextmanager
    async def open_app(settings: ServerSettings, edge: Edge) -> AsyncGenerator[App]:
        yield UploadReplica.servicer.app()


@pytest.fixture
async def replica(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Any]:
    for name, value in {**write_keys(tmp_path), "PERGAMON_METRICS_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    UploadReplica.servicer = Uploads()
    made = UploadReplica.__new__(UploadReplica)
    await UploadReplica.__init__(made, lambda: 0)  # as Serve does it
    yield made
    await made.__del__()
    assert UploadReplica.servicer.closed


async def test_upload_when_the_client_is_done_then_the_servicer_has_all_of_it(replica: Any) -> None:
    reply = await replica.UploadDocument(Requests(cancelled=False), grpc_context=object())
    assert reply.job_id == "2"


async def test_upload_when_the_client_is_gone_then_it_is_cancelled_and_not_taken_for_complete(replica: Any) -> None:
    with pytest.raises(asyncio.CancelledError):
        await replica.UploadDocument(Requests(cancelled=True), grpc_context=object())


async def test_health_when_a_service_is_not_ready_then_it_is_named(replica: Any) -> None:
    await replica.check_health()
    UploadReplica.servicer.ready = False
    with pytest.raises(RuntimeError, match="uploads"):
        await replica.check_health()


async def test_replica_when_there_are_no_api_keys_then_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERGAMON_API_KEYS_FILE", raising=False)
    made = UploadReplica.__new__(UploadReplica)
    with pytest.raises(ValueError, match="PERGAMON_API_KEYS_FILE"):
        await UploadReplica.__init__(made, lambda: 0)


def test_handlers_when_two_services_have_a_method_of_one_name_then_refused() -> None:
    twice = App(bindings=Uploads().app().bindings * 2)
    with pytest.raises(ValueError, match="two named"):
        Handlers(twice, [SERVICE.full_name])


def test_handlers_when_a_service_is_not_among_those_called_then_its_methods_are_left_out() -> None:
    """So that the app may serve others with methods of the same names, where there is a gRPC server."""
    handlers = Handlers(Uploads().app(), ["pergamon.other.v1.OtherService"])
    with pytest.raises(KeyError):
        handlers["UploadDocument"]


def test_scaling_when_it_may_vary_then_autoscaling_else_a_number() -> None:
    varied = Scaling(min_replicas=2, max_replicas=5, num_gpus=0.5).of_deployment()
    assert varied["autoscaling_config"]["max_replicas"] == 5
    assert varied["ray_actor_options"] == {"num_cpus": 1.0, "num_gpus": 0.5}
    assert IngestorScaling().of_deployment()["num_replicas"] == 1
    assert RetrieverScaling().target_ongoing_requests > Scaling().target_ongoing_requests


@pytest.mark.parametrize("wrong", [{"min_replicas": 3, "max_replicas": 2}, {"replicas": 2}, {"num_gpus": -1}])
def test_scaling_when_it_makes_no_sense_then_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Scaling(**wrong)
