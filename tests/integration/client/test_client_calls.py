"""Deadlines, retries and metadata of calls against a real server."""

import asyncio
import hashlib

import grpc
import pytest
from pergamon.client import (
    AsyncClient,
    DataType,
    DeadlineExceededError,
    InputType,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    PergamonError,
    RetryPolicy,
    Targets,
    UnavailableError,
    filters,
)
from pergamon.embedder.v1 import embedder_pb2 as embedder
from pergamon.ingestor.v1 import job_pb2, knowledge_base_pb2
from pergamon.retriever.v1 import retriever_pb2 as retriever

from tests.integration.client.scripted import (
    CREATED,
    EMBEDDED,
    FOUND,
    RERANKED,
    UNAVAILABLE,
    Hang,
    Refusal,
    serving,
)

OVERLOADED = Refusal(code=grpc.StatusCode.RESOURCE_EXHAUSTED, reason="OVERLOADED", retry_after_s=2.5)


async def test_embed_sends_all_of_its_arguments(client, served):
    served.services.embed.will(EMBEDDED)
    response = await client.embed(
        ["a", "b"],
        input_type=InputType.INPUT_TYPE_QUERY,
        dense_model="m",
        data_type=DataType.DATA_TYPE_FLOAT16,
        sparse=True,
        bm25_average_length=80.0,
        language="de",
    )
    assert response == EMBEDDED
    assert served.services.embed.requests == [
        embedder.EmbedRequest(
            texts=["a", "b"],
            input_type=embedder.INPUT_TYPE_QUERY,
            truncation=embedder.TRUNCATION_FAIL,
            priority=embedder.PRIORITY_INTERACTIVE,
            dense=embedder.DenseOutput(model="m", data_type=DataType.DATA_TYPE_FLOAT16),
            sparse=embedder.SparseOutput(bm25_average_length=80.0, language="de"),
        )
    ]


async def test_embed_without_dense_asks_for_none(client, served):
    served.services.embed.will(EMBEDDED)
    await client.embed(["a"], dense=False, sparse=True)
    assert not served.services.embed.requests[0].HasField("dense")


async def test_search_of_unset_options_leaves_them_to_the_knowledge_base(client, served):
    served.services.search.will(FOUND)
    await client.search("q", "kb_1")
    assert served.services.search.requests == [retriever.SearchRequest(query="q", knowledge_base_ids=["kb_1"])]


async def test_retrieve_sends_all_of_its_options(client, served):
    served.services.retrieve.will(retriever.RetrieveResponse())
    options = {
        "mode": retriever.SEARCH_MODE_KEYWORD,
        "top_k": 3,
        "filter": filters.exists("title"),
        "combination": retriever.COMBINATION_MERGED,
        "rerank_model": "r",
        "similarity_threshold": 0.0,
        "candidates": 20,
        "dense_weight": 0.0,
        "bm25_weight": 2.0,
        "include_dropped": True,
    }
    await client.retrieve("q", ["kb_1", "kb_2"], budget_tokens=100, max_blocks=2, rerank=False, **options)
    sent = served.services.retrieve.requests[0]
    assert sent.search == retriever.SearchRequest(
        query="q", knowledge_base_ids=["kb_1", "kb_2"], rerank=retriever.RERANK_CHOICE_OFF, **options
    )
    assert sent.search.HasField("similarity_threshold")
    assert (sent.budget_tokens, sent.max_blocks) == (100, 2)


async def test_search_of_an_unknown_option_is_refused(client):
    with pytest.raises(TypeError, match="topk"):
        await client.search("q", "kb_1", topk=3)


async def test_call_carries_the_key_and_one_request_id_over_its_attempts(client, served):
    served.services.embed.will(UNAVAILABLE, UNAVAILABLE, EMBEDDED)
    await client.embed(["a"])
    await client.embed(["a"])
    seen = served.services.embed.metadata
    assert {metadata["authorization"] for metadata in seen} == {"Bearer secret"}
    first, second, third, other = (metadata["x-request-id"] for metadata in seen)
    assert first == second == third != other


async def test_call_when_unavailable_backs_off_until_it_succeeds(client, served, time):
    served.services.rerank.will(UNAVAILABLE, UNAVAILABLE, RERANKED)
    assert await client.rerank("q", ["p"]) == RERANKED
    assert time.slept == [0.2, 0.4]


async def test_call_when_overloaded_waits_as_long_as_the_server_says(client, served, time):
    served.services.embed.will(OVERLOADED, EMBEDDED)
    assert await client.embed(["a"]) == EMBEDDED
    assert time.slept == [2.5]


async def test_call_when_the_delay_does_not_fit_the_deadline_fails_at_once(client, served, time):
    served.services.embed.will(OVERLOADED, EMBEDDED)
    with pytest.raises(OverloadedError) as caught:
        await client.embed(["a"], timeout_s=2)
    assert (caught.value.reason, caught.value.retry_after_s) == ("OVERLOADED", 2.5)
    assert caught.value.request_id == served.services.embed.metadata[0]["x-request-id"]
    assert time.slept == []


async def test_call_when_exhausted_without_retry_info_is_not_repeated(client, served):
    served.services.embed.will(Refusal(code=grpc.StatusCode.RESOURCE_EXHAUSTED), EMBEDDED)
    with pytest.raises(OverloadedError):
        await client.embed(["a"])
    assert len(served.services.embed.requests) == 1


async def test_call_larger_than_the_server_takes_is_an_invalid_request(client, served, time):
    served.services.embed.will(EMBEDDED)
    with pytest.raises(InvalidRequestError) as caught:
        await client.embed(["x" * 1_100_000])
    assert caught.value.reason == "MESSAGE_TOO_LARGE"
    assert time.slept == []


async def test_call_that_stays_unavailable_gives_up_after_its_attempts(served, time):
    served.services.embed.will(UNAVAILABLE)
    async with AsyncClient(served.target, timing=time.timing, retry=RetryPolicy(max_attempts=3)) as client:
        with pytest.raises(UnavailableError):
            await client.embed(["a"])
    assert len(served.services.embed.requests) == 3


async def test_call_that_stays_unavailable_ends_before_its_deadline(served, time):
    served.services.embed.will(UNAVAILABLE)
    policy = RetryPolicy(max_attempts=100, initial_backoff_s=1, max_backoff_s=1)
    async with AsyncClient(served.target, timing=time.timing, retry=policy) as client:
        with pytest.raises(UnavailableError):
            await client.embed(["a"], timeout_s=3.5)
    assert time.now_s == 3
    assert len(served.services.embed.requests) == 4


async def test_call_to_nobody_is_unavailable(time):
    async with AsyncClient("127.0.0.1:1", timing=time.timing) as client:
        with pytest.raises(UnavailableError):
            await client.list_embedding_models()


async def test_call_that_is_answered_too_late_exceeds_its_deadline(client, served):
    hang = Hang()
    served.services.embed.will(hang)
    with pytest.raises(DeadlineExceededError) as caught:
        await client.embed(["a"], timeout_s=0.1)
    assert caught.value.request_id
    await asyncio.wait_for(hang.cancelled.wait(), 10)


async def test_call_whose_task_is_cancelled_is_cancelled_at_the_server(client, served):
    hang = Hang()
    served.services.embed.will(hang)
    task = asyncio.create_task(client.embed(["a"]))
    await asyncio.wait_for(hang.began.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(hang.cancelled.wait(), 10)


async def test_call_in_progress_when_the_client_closes_ends_with_an_error(client, served):
    hang = Hang()
    served.services.embed.will(hang)
    task = asyncio.create_task(client.embed(["a"]))
    await asyncio.wait_for(hang.began.wait(), 10)
    await client.aclose()
    with pytest.raises(PergamonError, match="closed") as caught:
        await task
    assert caught.value.code is grpc.StatusCode.CANCELLED
    with pytest.raises(RuntimeError, match="closed"):
        await client.embed(["a"])


async def test_create_knowledge_base_when_repeated_keeps_its_request_id(client, served):
    served.services.create_kb.will(UNAVAILABLE, CREATED)
    assert (await client.create_knowledge_base("Policies")).id == "kb_1"
    first, second = served.services.create_kb.requests
    assert first == second
    assert first.request_id


@pytest.mark.parametrize(
    ("script", "call"),
    [
        ("update_kb", lambda c: c.update_knowledge_base("kb_1", name="n")),
        ("delete_kb", lambda c: c.delete_knowledge_base("kb_1")),
        ("cancel_job", lambda c: c.cancel_job("job_1")),
    ],
)
async def test_call_that_is_not_safe_to_repeat_is_made_once(client, served, script, call):
    getattr(served.services, script).will(UNAVAILABLE)
    with pytest.raises(UnavailableError):
        await call(client)
    assert len(getattr(served.services, script).requests) == 1


async def test_update_knowledge_base_masks_only_what_is_given(client, served):
    response = knowledge_base_pb2.UpdateKnowledgeBaseResponse()
    served.services.update_kb.will(response)
    retrieval = knowledge_base_pb2.RetrievalDefaults(rerank=True)
    await client.update_knowledge_base("kb_1", description="", labels={})
    await client.update_knowledge_base("kb_1", retrieval=retrieval, update_mask=["retrieval.rerank"])
    first, second = (list(request.update_mask.paths) for request in served.services.update_kb.requests)
    assert first == ["description", "labels"]
    assert second == ["retrieval.rerank"]


async def test_error_of_the_server_arrives_with_its_kind(client, served):
    served.services.get_job.will(Refusal(code=grpc.StatusCode.NOT_FOUND, reason="JOB_NOT_FOUND", message="no job"))
    with pytest.raises(NotFoundError, match="no job") as caught:
        await client.get_job("job_9")
    assert caught.value.reason == "JOB_NOT_FOUND"
    assert served.services.get_job.requests == [job_pb2.GetJobRequest(job_id="job_9")]


async def test_tokenizer_that_breaks_in_the_middle_is_fetched_anew(client, served):
    content = b'{"version": "1.0"}'
    pieces = [embedder.GetTokenizerResponse(data=content[:5]), embedder.GetTokenizerResponse(data=content[5:])]
    served.services.tokenizer.will([pieces[0], UNAVAILABLE], pieces)
    assert await client.get_tokenizer(hashlib.sha256(content).hexdigest()) == content


async def test_tokenizer_with_other_bytes_than_asked_for_is_refused(client, served):
    served.services.tokenizer.will([embedder.GetTokenizerResponse(data=b"other")])
    with pytest.raises(ValueError, match="sha256"):
        await client.get_tokenizer("0" * 64)


async def test_call_to_a_service_with_its_own_target_goes_there(served):
    served.services.embed.will(EMBEDDED)
    async with serving() as other, AsyncClient(served.target, targets=Targets(reranker=other.target)) as client:
        other.services.rerank.will(RERANKED)
        assert await client.embed(["a"]) == EMBEDDED
        assert await client.rerank("q", ["p"]) == RERANKED
        assert len(other.services.rerank.requests) == 1
