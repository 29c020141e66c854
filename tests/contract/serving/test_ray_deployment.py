"""All four services as Ray Serve applications behind one port: a document goes in, is found, and stays its tenant's."""

import io

import grpc
import pytest
from pergamon.client import AsyncClient, PergamonError
from pergamon.ingestor.v1.job_pb2 import JobState
from pergamon.retriever.v1.retriever_pb2 import STAGE_STATE_OK

from tests.contract.serving.conftest import APPLICATIONS, Serving
from tests.helpers.keys import ACME, GLOBEX

pytestmark = pytest.mark.timeout(150)

HANDBOOK = (
    b"# Leave\n\nEvery employee has 28 days of paid leave.\n\n# Travel\n\nFlights need the approval of a manager.\n"
)


class BrokenFile(io.RawIOBase):
    """Ends in an error after its first piece, and cannot be read twice: so nothing but the sender knows its length."""

    def __init__(self) -> None:
        self._pieces = [b"The beginning of a document."]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._pieces:
            raise OSError("the disk is gone")
        return self._pieces.pop()


async def test_deployment_when_a_document_is_uploaded_then_it_is_watched_found_and_hidden_from_others(
    ray_serve: Serving,
) -> None:
    async with (
        AsyncClient(ray_serve.target, api_key=ACME, timeout_s=30) as acme,
        AsyncClient(ray_serve.target, api_key=GLOBEX) as globex,
    ):
        base = await acme.create_knowledge_base("handbook")
        uploaded = await acme.upload_document(base.id, HANDBOOK, name="handbook.md")
        states = [job.state async for job in acme.watch_job(uploaded.job_id, timeout_s=60)]
        assert states[-1] == JobState.JOB_STATE_DONE
        found = await acme.search("approval of flights", base.id, rerank=True)
        assert any("manager" in passage.text for passage in found.passages)
        assert {stage.stage: stage.state for stage in found.stages}["rerank"] == STAGE_STATE_OK
        with pytest.raises(PergamonError) as caught:
            await globex.search("approval of flights", base.id)
        assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.NOT_FOUND, "KNOWLEDGE_BASE_NOT_FOUND")


async def test_upload_when_its_sender_gives_up_then_nothing_is_stored(ray_serve: Serving) -> None:
    async with AsyncClient(ray_serve.target, api_key=ACME, timeout_s=30) as client:
        base = await client.create_knowledge_base("interrupted")
        with pytest.raises(OSError, match="the disk is gone"):
            await client.upload_document(base.id, BrokenFile(), name="half.txt")
        assert [document async for document in client.list_documents(base.id)] == []


@pytest.mark.parametrize("application", APPLICATIONS)
def test_call_when_it_names_no_application_then_the_proxy_refuses_it_without_details(
    ray_serve: Serving, application: str
) -> None:
    """A limit of Ray Serve: it does not choose by path, and its own refusals carry no google.rpc.Status."""
    with grpc.insecure_channel(ray_serve.target) as channel:
        methods = {"embedder": "EmbedderService/ListModels", "reranker": "RerankerService/ListModels",
                   "ingestor": "JobService/GetJob", "retriever": "RetrieverService/Search"}  # fmt: skip
        call = channel.unary_unary(f"/pergamon.{application}.v1.{methods[application]}")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=10)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "grpc-status-details-bin" not in dict(caught.value.trailing_metadata())
