"""Reranking through both clients: what a request carries, and streams of requests."""

import asyncio

import grpc
import pytest
from pergamon.client import (
    Client,
    LongTextPolicy,
    OverloadedError,
    Priority,
    RerankStreamRequest,
    UnavailableError,
    rerank_request,
)
from pergamon.reranker.v1 import reranker_pb2 as pb

from tests.integration.client.scripted import RERANKED, UNAVAILABLE, Refusal, serving

FULL = Refusal(code=grpc.StatusCode.RESOURCE_EXHAUSTED, reason="OVERLOADED", retry_after_s=2.5)


def asking(number: int) -> RerankStreamRequest:
    return RerankStreamRequest(id=str(number), request=rerank_request(f"query {number}", ["p"]))


async def echo(requests, context):
    async for request in requests:
        yield pb.RerankStreamResponse(id=request.id, response=pb.RerankResponse(model=request.request.query))


async def test_rerank_when_options_are_named_then_all_travel(client, served):
    served.services.rerank.will(RERANKED)
    options = {
        "model": "m", "top_n": 2, "return_text": True, "priority": Priority.PRIORITY_BULK,
        "long_passages": LongTextPolicy.LONG_TEXT_POLICY_FAIL, "long_query": LongTextPolicy.LONG_TEXT_POLICY_FAIL,
        "language": "de", "require_language": True,
    }  # fmt: skip
    assert await client.rerank("q", ["p"], **options) == RERANKED
    (sent,) = served.services.rerank.requests
    assert sent == pb.RerankRequest(query="q", passages=["p"], **options | {"priority": pb.PRIORITY_BULK})
    assert sent == rerank_request("q", ["p"], **options)


def test_rerank_request_when_the_passages_are_one_string_then_a_type_error():
    with pytest.raises(TypeError, match="list of strings"):
        rerank_request("q", "passage")


async def test_rerank_stream_when_requests_are_many_then_each_is_answered_in_order(client, served):
    served.services.rerank_stream = echo

    async def requests():
        for number in range(40):
            yield asking(number)

    received = [(reply.id, reply.response.model) async for reply in client.rerank_stream(requests())]
    assert received == [(str(number), f"query {number}") for number in range(40)]


async def test_rerank_stream_when_it_breaks_then_raises_after_the_replies_it_had(client, served):
    async def breaking(requests, context):
        yield pb.RerankStreamResponse(id=(await anext(aiter(requests))).id)
        await UNAVAILABLE.send(context)

    async def requests():
        yield asking(0)

    served.services.rerank_stream = breaking
    received = []
    with pytest.raises(UnavailableError):
        async for reply in client.rerank_stream(requests()):
            received.append(reply.id)
    assert received == ["0"]


async def test_rerank_stream_when_the_server_is_full_then_the_delay_it_asks_for_arrives(client, served):
    async def refusing(requests, context):
        await FULL.send(context)
        yield

    async def endless():
        while True:
            yield RerankStreamRequest(id="0", request=rerank_request("q", ["y" * 400_000]))

    served.services.rerank_stream = refusing
    with pytest.raises(OverloadedError) as caught:
        await anext(client.rerank_stream(endless()))
    assert (caught.value.reason, caught.value.retry_after_s) == ("OVERLOADED", 2.5)


async def test_blocking_rerank_stream_when_given_a_plain_iterable_then_a_plain_iterator_answers():
    async with serving() as served:
        served.services.rerank_stream = echo

        def in_a_thread() -> list[str]:
            with Client(served.target, timeout_s=20) as blocking:
                return [reply.id for reply in blocking.rerank_stream(asking(number) for number in range(5))]

        assert await asyncio.to_thread(in_a_thread) == list("01234")
