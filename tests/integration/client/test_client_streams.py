"""Lists over pages, embedding streams, watched jobs."""

import asyncio

import grpc
import pytest
from pergamon.client import (
    AsyncClient,
    DeadlineExceededError,
    EmbedStreamRequest,
    NotFoundError,
    OverloadedError,
    PergamonError,
    RetryPolicy,
    UnavailableError,
    embed_request,
)
from pergamon.embedder.v1 import embedder_pb2 as embedder
from pergamon.ingestor.v1 import document_pb2, job_pb2

from tests.integration.client.scripted import UNAVAILABLE, Hang, Refusal, job

RUNNING, DONE, FAILED = job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_DONE, job_pb2.JOB_STATE_FAILED


def page(names: str, next_token: str) -> document_pb2.ListDocumentsResponse:
    documents = [document_pb2.Document(name=name) for name in names]
    return document_pb2.ListDocumentsResponse(documents=documents, next_page_token=next_token)


async def names(documents) -> str:
    return "".join([document.name async for document in documents])


async def test_list_over_pages_yields_all_in_order(client, served):
    served.services.list_documents.will(page("ab", "t1"), page("", "t2"), page("c", ""))
    found = client.list_documents("kb_1", states=[document_pb2.DOCUMENT_STATE_DONE], name_prefix="x", page_size=2)
    assert await names(found) == "abc"
    asked = served.services.list_documents.requests
    assert [request.page_token for request in asked] == ["", "t1", "t2"]
    assert {(r.knowledge_base_id, r.page_size, r.name_prefix, tuple(r.states)) for r in asked} == {
        ("kb_1", 2, "x", (document_pb2.DOCUMENT_STATE_DONE,))
    }


async def test_list_whose_page_fails_once_goes_on(client, served):
    served.services.list_documents.will(page("a", "t1"), UNAVAILABLE, page("b", ""))
    assert await names(client.list_documents("kb_1")) == "ab"


async def test_list_fetches_a_page_only_when_it_is_needed(client, served):
    served.services.list_documents.will(page("ab", "t1"), page("c", ""))
    found = client.list_documents("kb_1")
    assert [(await anext(found)).name, (await anext(found)).name] == ["a", "b"]
    assert len(served.services.list_documents.requests) == 1
    await found.aclose()


async def test_list_whose_server_repeats_a_token_ends_with_an_error(client, served):
    served.services.list_documents.will(page("a", "t1"))
    with pytest.raises(RuntimeError, match="page token"):
        await names(client.list_documents("kb_1"))


async def test_page_routes_come_from_the_first_page_of_blocks(client, served):
    served.services.list_blocks.will(document_pb2.ListBlocksResponse(page_routes=["TEXT", "OCR"], next_page_token="t"))
    assert await client.get_page_routes("doc_1") == ["TEXT", "OCR"]


def batch(number: int) -> EmbedStreamRequest:
    return EmbedStreamRequest(id=str(number), request=embed_request([f"text {number}"]))


async def echo(requests, context):
    async for request in requests:
        yield embedder.EmbedStreamResponse(id=request.id)


async def test_embed_stream_answers_every_request_in_order(client, served):
    served.services.embed_stream = echo

    async def batches():
        for number in range(40):
            yield batch(number)

    assert [reply.id async for reply in client.embed_stream(batches())] == [str(n) for n in range(40)]


async def test_embed_stream_whose_replies_are_not_read_stops_taking_requests(client, served):
    taken = 0
    at_rest = asyncio.Event()

    async def big_reply_then_next(requests, context):
        async for request in requests:
            yield embedder.EmbedStreamResponse(id=request.id + "x" * 400_000)

    async def endless():
        nonlocal taken
        while True:
            taken += 1
            at_rest.set()
            yield EmbedStreamRequest(id=str(taken), request=embed_request(["y" * 400_000]))

    served.services.embed_stream = big_reply_then_next
    replies = client.embed_stream(endless())
    await anext(replies)
    while at_rest.is_set():  # until nothing moves for a while: the source is held up, or this never ends
        at_rest.clear()
        try:
            await asyncio.wait_for(at_rest.wait(), 0.3)
        except TimeoutError:
            break
    assert taken < 100
    await replies.aclose()


async def test_embed_stream_that_breaks_raises_after_the_replies_it_had(client, served):
    async def breaking(requests, context):
        yield embedder.EmbedStreamResponse(id=(await anext(aiter(requests))).id)
        await UNAVAILABLE.send(context)

    async def batches():
        yield batch(0)
        await asyncio.Event().wait()

    served.services.embed_stream = breaking
    seen = []
    with pytest.raises(UnavailableError):
        async for reply in client.embed_stream(batches()):
            seen.append(reply.id)
    assert seen == ["0"]


@pytest.mark.parametrize("_", range(10))  # the refusal races with the writes
async def test_embed_stream_that_is_refused_while_it_is_written_raises_why(client, served, _):
    refusal = Refusal(code=grpc.StatusCode.RESOURCE_EXHAUSTED, reason="OVERLOADED", retry_after_s=2.5)

    async def refuse(requests, context):
        await anext(aiter(requests))
        await refusal.send(context)
        yield embedder.EmbedStreamResponse()

    async def endless():
        while True:
            yield EmbedStreamRequest(id="0", request=embed_request(["y" * 400_000]))

    served.services.embed_stream = refuse
    with pytest.raises(OverloadedError) as caught:
        await anext(client.embed_stream(endless()))
    assert (caught.value.reason, caught.value.retry_after_s) == ("OVERLOADED", 2.5)


async def test_embed_stream_whose_source_fails_raises_that_failure(client, served):
    served.services.embed_stream = echo

    async def batches():
        yield batch(0)
        raise KeyError("source")

    with pytest.raises(KeyError, match="source"):
        async for _ in client.embed_stream(batches()):
            pass


async def test_embed_stream_left_early_is_cancelled_at_the_server(client, served):
    hang = Hang()

    async def first_then_hang(requests, context):
        yield embedder.EmbedStreamResponse(id="0")
        await hang.wait()

    async def batches():
        yield batch(0)
        await asyncio.Event().wait()

    served.services.embed_stream = first_then_hang
    replies = client.embed_stream(batches())
    await anext(replies)
    await asyncio.wait_for(hang.began.wait(), 10)
    await replies.aclose()
    await asyncio.wait_for(hang.cancelled.wait(), 10)


async def stages(jobs) -> list[str]:
    return [f"{job_pb2.JobState.Name(j.state)[10:]} {j.stage}" async for j in jobs]


async def test_watch_job_that_breaks_goes_on_without_repeating(client, served, time):
    parse, embed, done = job(RUNNING, "parse"), job(RUNNING, "embed"), job(DONE)
    served.services.watch.will([parse, embed, UNAVAILABLE], [UNAVAILABLE], [embed, done])
    assert await stages(client.watch_job("job_1")) == ["RUNNING parse", "RUNNING embed", "DONE "]
    assert time.slept == [0.2, 0.4]


async def test_watch_job_whose_server_ends_it_early_is_watched_again(client, served):
    served.services.watch.will([job(RUNNING, "parse")], [job(DONE)])
    assert await stages(client.watch_job("job_1")) == ["RUNNING parse", "DONE "]


async def test_watch_job_that_breaks_again_and_again_without_news_gives_up(served, time):
    served.services.watch.will([job(RUNNING, "parse"), UNAVAILABLE])
    async with AsyncClient(served.target, timing=time.timing, retry=RetryPolicy(max_attempts=3)) as client:
        with pytest.raises(UnavailableError):
            await stages(client.watch_job("job_1"))
    assert len(served.services.watch.requests) == 3


async def test_watch_job_that_breaks_after_each_news_goes_on_for_ever(served, time):
    breaks = [[job(RUNNING, str(number)), UNAVAILABLE] for number in range(6)]
    served.services.watch.will(*breaks, [job(DONE)])
    async with AsyncClient(served.target, timing=time.timing, retry=RetryPolicy(max_attempts=2)) as client:
        assert len(await stages(client.watch_job("job_1"))) == 7


async def test_watch_job_of_an_unknown_job_is_not_repeated(client, served):
    served.services.watch.will([Refusal(code=grpc.StatusCode.NOT_FOUND, reason="JOB_NOT_FOUND")])
    with pytest.raises(NotFoundError):
        await stages(client.watch_job("job_1"))
    assert len(served.services.watch.requests) == 1


async def test_wait_for_job_returns_it_as_it_ended(client, served):
    served.services.watch.will([job(RUNNING, "parse"), job(FAILED)])
    assert (await client.wait_for_job("job_1", 60)).state == FAILED


async def test_wait_for_job_that_does_not_end_exceeds_its_deadline(client, served):
    hang = Hang()
    served.services.watch.will([job(RUNNING, "parse"), hang])
    with pytest.raises(DeadlineExceededError):
        await client.wait_for_job("job_1", timeout_s=0.2)
    await asyncio.wait_for(hang.cancelled.wait(), 10)


async def test_watch_job_when_the_client_closes_ends_with_an_error(client, served):
    served.services.watch.will([job(RUNNING, "parse"), Hang()])
    jobs = client.watch_job("job_1")
    await anext(jobs)
    await client.aclose()
    with pytest.raises(PergamonError, match="closed"):
        await anext(jobs)
