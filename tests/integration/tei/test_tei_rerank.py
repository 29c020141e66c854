"""tei.v1.Rerank and RerankStream: order, scores, lengths, and what only the first message says."""

import math
from collections.abc import AsyncIterator

import grpc
import pytest
from pytest import approx

from services.inference.cards import ModelKind
from services.tei.v1 import tei_pb2 as pb
from tests.helpers.inference import card
from tests.helpers.tei import MAX_ITEMS, Client, Shelf, dense_card, engine_of, failure, messages, served, words

INVALID = grpc.StatusCode.INVALID_ARGUMENT
LONG = words(*range(70))


async def ranks(client: Client, *texts: str, **fields: object) -> list[tuple[int, float]]:
    reply = await client.rerank.Rerank(pb.RerankRequest(query="w1", texts=texts, **fields))
    return [(rank.index, rank.score) for rank in reply.ranks]


def one(text: str, **fields: object) -> pb.RerankStreamRequest:
    return pb.RerankStreamRequest(**{"query": "w1", "text": text} | fields)


async def streamed(client: Client, *requests: pb.RerankStreamRequest) -> pb.RerankResponse:
    return await client.rerank.RerankStream(messages(*requests))


async def test_rerank_when_scores_are_raw_then_logits_best_first(client: Client):
    assert await ranks(client, "w39", "w42", "w40", raw_scores=True) == [(1, 2.0), (2, 0.0), (0, -1.0)]


async def test_rerank_when_scores_are_not_raw_then_the_sigmoid_of_them(client: Client):
    found = await ranks(client, "w39", "w42", "w0")
    assert [index for index, _ in found] == [1, 0, 2]
    assert [score for _, score in found] == approx([1 / (1 + math.exp(-logit)) for logit in (2, -1, -40)], rel=1e-6)


async def test_rerank_when_probabilities_are_equal_on_the_wire_then_still_by_logit(client: Client):
    found = await ranks(client, "w80", "w70", "w89")
    assert [score for _, score in found] == [1.0, 1.0, 1.0]
    assert [index for index, _ in found] == [2, 0, 1]


async def test_rerank_when_logits_are_equal_then_in_the_order_of_the_request(client: Client):
    assert [index for index, _ in await ranks(client, "w40", "w41", "w40", "w40", "w41")] == [1, 4, 0, 2, 3]


async def test_rerank_when_texts_are_wanted_then_each_comes_with_its_rank(client: Client):
    reply = await client.rerank.Rerank(pb.RerankRequest(query="w1", texts=["w2 w40", "w41"], return_text=True))
    assert [rank.text for rank in reply.ranks] == ["w41", "w2 w40"]
    bare = await client.rerank.Rerank(pb.RerankRequest(query="w1", texts=["w2 w40", "w41"]))
    assert not any(rank.HasField("text") for rank in bare.ranks)


async def test_rerank_when_it_answers_then_its_cost_is_the_sum_and_in_the_headers(client: Client):
    call = client.rerank.Rerank(pb.RerankRequest(query="w1", texts=["w2", "w3 w4"]))
    spent = (await call).metadata
    assert (spent.compute_chars, spent.compute_tokens) == (9, 5 + 6)
    assert 0 < spent.inference_time_ns < spent.total_time_ns
    headers = dict(await call.initial_metadata())
    assert (headers["x-compute-tokens"], headers["x-compute-characters"]) == ("11", "9")


async def test_rerank_when_a_text_is_too_long_then_refused_with_its_place_unless_it_may_be_cut(client: Client):
    code, reason, details = await failure(client.rerank.Rerank(pb.RerankRequest(query="w1", texts=["w2", LONG])))
    assert (code, reason) == (INVALID, "INPUT_TOO_LONG")
    assert details["BadRequest"].field_violations[0].field == "texts[1]"
    room = 64 - 3 - 1  # of query and specials
    assert await ranks(client, LONG, truncate=True, raw_scores=True) == [(0, room - 1 - 40)]
    left = pb.TRUNCATION_DIRECTION_LEFT
    assert await ranks(client, LONG, truncate=True, raw_scores=True, truncation_direction=left) == [(0, 69 - 40)]


async def test_rerank_when_the_query_is_too_long_then_refused_unless_it_may_be_cut(client: Client):
    request = pb.RerankRequest(query=LONG, texts=["w2 w50"], raw_scores=True)
    code, reason, _ = await failure(client.rerank.Rerank(request))
    assert (code, reason) == (INVALID, "INPUT_TOO_LONG")
    request.truncate = True
    assert (await client.rerank.Rerank(request)).ranks[0].score == 10


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"texts": []}, "EMPTY_INPUT", "texts"),
        ({"query": " ", "texts": ["w1"]}, "EMPTY_INPUT", "query"),
        ({"texts": ["w1", ""]}, "EMPTY_INPUT", "texts[1]"),
        ({"texts": ["w1"] * (MAX_ITEMS + 1)}, "BATCH_TOO_LARGE", "texts"),
        ({"texts": ["w1"], "truncation_direction": 5}, "INVALID_REQUEST", "truncation_direction"),
    ],
)
async def test_rerank_when_the_request_is_wrong_then_invalid_argument_with_the_field(
    client: Client, fields: dict[str, object], reason: str, field: str
):
    code, found, details = await failure(client.rerank.Rerank(pb.RerankRequest(**{"query": "w1"} | fields)))
    assert (code, found) == (INVALID, reason)
    assert [violation.field for violation in details["BadRequest"].field_violations] == [field]


async def test_rerank_stream_when_texts_come_one_by_one_then_one_reply_as_of_a_unary_call(client: Client):
    texts = ("w39", "w42", "w40")
    reply = await streamed(client, *(one(text) for text in texts))
    assert [(rank.index, rank.score) for rank in reply.ranks] == await ranks(client, *texts)
    assert reply.metadata.compute_tokens == 15


async def test_rerank_stream_when_later_messages_ask_otherwise_then_the_first_one_counts(client: Client):
    reply = await streamed(client, one("w42", raw_scores=True, return_text=True), one("w41"))
    assert [(rank.text, rank.score) for rank in reply.ranks] == [("w42", 2.0), ("w41", 1.0)]
    reply = await streamed(client, one("w42"), one("w41", raw_scores=True, return_text=True))
    assert not any(rank.HasField("text") or rank.score > 1 for rank in reply.ranks)


async def test_rerank_stream_when_queries_and_cuts_differ_then_each_text_has_its_own(client: Client):
    reply = await streamed(
        client,
        one("w41", raw_scores=True),
        one(LONG, truncate=True, truncation_direction=pb.TRUNCATION_DIRECTION_LEFT),
        one(LONG, truncate=True),
        one("w45", query="w2 w3"),
    )
    assert [(rank.index, rank.score) for rank in reply.ranks] == [(1, 29.0), (2, 19.0), (3, 5.0), (0, 1.0)]
    assert reply.metadata.compute_tokens == 5 + 64 + 64 + 6


async def test_rerank_stream_when_it_is_empty_then_invalid_argument(client: Client):
    code, reason, details = await failure(streamed(client))
    assert (code, reason) == (INVALID, "EMPTY_INPUT")
    assert "without a message" in details["BadRequest"].field_violations[0].description


async def test_rerank_stream_when_a_text_is_bad_then_its_place_in_the_stream_is_told(client: Client):
    code, reason, details = await failure(streamed(client, one("w1"), one("w2", query="w5"), one(LONG, query="w5")))
    assert (code, reason) == (INVALID, "INPUT_TOO_LONG")
    assert details["BadRequest"].field_violations[0].field == "stream[2]"


async def test_rerank_stream_when_it_never_ends_then_refused_as_soon_as_it_is_too_large(client: Client):
    async def forever() -> AsyncIterator[pb.RerankStreamRequest]:
        while True:
            yield one("w1")

    code, reason, _ = await failure(client.rerank.RerankStream(forever()))
    assert (code, reason) == (INVALID, "BATCH_TOO_LARGE")


@pytest.mark.parametrize("name", ["Rerank", "RerankStream"])
async def test_rerank_when_there_is_no_reranker_then_failed_precondition(name: str):
    async with served(embedding=Shelf(engine_of(dense_card()))) as client:
        call = (
            client.rerank.Rerank(pb.RerankRequest(query="w1", texts=["w2"]))
            if name == "Rerank"
            else client.rerank.RerankStream(messages(one("w2")))
        )
        code, reason, _ = await failure(call)
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_MODEL_KIND")


async def test_embed_when_there_is_only_a_reranker_then_failed_precondition():
    async with served(reranking=Shelf(engine_of(card(ModelKind.RERANKER)))) as client:
        code, reason, _ = await failure(client.embed.Embed(pb.EmbedRequest(inputs="w1")))
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_MODEL_KIND")


async def test_rerank_when_the_texts_make_the_reply_too_large_then_refused():
    async with served(reranking=Shelf(engine_of(card(ModelKind.RERANKER))), max_reply_bytes=100) as client:
        request = pb.RerankRequest(query="w1", texts=[words(*range(40))], return_text=True)
        code, reason, _ = await failure(client.rerank.Rerank(request))
        assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
        request.return_text = False
        assert len((await client.rerank.Rerank(request)).ranks) == 1
