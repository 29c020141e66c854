"""One deployment of four processes: a document goes in and is found, and who may not see it does not."""

import grpc
import pytest
from pergamon.client import PergamonError
from pergamon.ingestor.v1.job_pb2 import JobState
from pergamon.retriever.v1.retriever_pb2 import STAGE_STATE_OK

from tests.helpers.keys import ACME, GLOBEX, READER
from tests.integration.servers.conftest import Deployment

HANDBOOK = b"# Leave\n\nEvery employee has 28 days of leave.\n\n# Travel\n\nFlights need the approval of a manager.\n"


async def test_deployment_when_a_document_is_uploaded_then_a_search_with_reranking_finds_it(
    deployment: Deployment,
) -> None:
    async with deployment.client() as client:
        base = await client.create_knowledge_base("handbook")
        uploaded = await client.upload_document(base.id, HANDBOOK, name="handbook.md")
        job = await client.wait_for_job(uploaded.job_id, timeout_s=60)
        assert job.state == JobState.JOB_STATE_DONE
        found = await client.search("approval of flights", base.id, rerank=True)
        assert any("manager" in passage.text for passage in found.passages)
        states = {stage.stage: stage.state for stage in found.stages}
        assert states["rerank"] == STAGE_STATE_OK


@pytest.mark.parametrize("service", ["embedder", "reranker", "ingestor", "retriever"])
async def test_every_server_when_the_key_is_wrong_then_unauthenticated(deployment: Deployment, service: str) -> None:
    async with deployment.client("no-such-key") as client:
        calls = {
            "embedder": lambda: client.list_embedding_models(),
            "reranker": lambda: client.list_rerank_models(),
            "ingestor": lambda: client.get_knowledge_base("kb_unknown"),
            "retriever": lambda: client.search("q", "kb_unknown"),
        }
        with pytest.raises(PergamonError) as caught:
            await calls[service]()
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")


async def test_another_tenant_when_it_names_ids_that_exist_then_they_look_unknown(deployment: Deployment) -> None:
    async with deployment.client(ACME) as acme, deployment.client(GLOBEX) as globex:
        base = await acme.create_knowledge_base("secret plans")
        uploaded = await acme.upload_document(base.id, b"The plan is secret.", name="plan.txt")
        await acme.wait_for_job(uploaded.job_id, timeout_s=60)
        assert (await acme.search("the plan", base.id)).passages
        unknown = f"kb_{'0' * len(base.id.removeprefix('kb_'))}"
        for ask in (globex.get_knowledge_base, lambda kb: globex.search("the plan", kb)):
            answers = [await _failure(ask, base.id), await _failure(ask, unknown)]
            assert answers == [(grpc.StatusCode.NOT_FOUND, "KNOWLEDGE_BASE_NOT_FOUND")] * 2
        assert await _failure(globex.get_document, uploaded.document.id) == (
            grpc.StatusCode.NOT_FOUND,
            "DOCUMENT_NOT_FOUND",
        )
        assert await _failure(globex.get_job, uploaded.job_id) == (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")


async def test_reader_when_it_wants_to_write_then_permission_denied(deployment: Deployment) -> None:
    async with deployment.client(READER) as client:
        answer = await _failure(client.create_knowledge_base, "mine")
    assert answer == (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")


async def _failure(ask, argument: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(PergamonError) as caught:
        await ask(argument)
    return caught.value.code, caught.value.reason
