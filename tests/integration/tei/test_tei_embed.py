"""tei.v1.Embed: prompts, truncation, dimensions, what models give, and what a call cost."""

import grpc
import numpy as np
import pytest
from pytest import approx

from services.tei.v1 import tei_pb2 as pb
from tests.helpers.inference import HIDDEN, MULTI, m3_card
from tests.helpers.tei import (
    PASSAGE_PREFIX,
    QUERY_PREFIX,
    Client,
    Shelf,
    dense_card,
    engine_of,
    failure,
    gathered,
    messages,
    norm,
    served,
    words,
)  # fmt: skip

LONG = words(*range(70))
MAX_TOKENS = 64
INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


async def vector(client: Client, text: str, **fields: object) -> list[float]:
    return list((await client.embed.Embed(pb.EmbedRequest(inputs=text, **fields))).embeddings)


async def test_embed_when_nothing_is_set_then_a_unit_vector_of_the_bare_text(client: Client):
    reply = await client.embed.Embed(pb.EmbedRequest(inputs="w1 w2 w3"))
    assert len(reply.embeddings) == HIDDEN
    assert norm(reply.embeddings) == approx(1, abs=1e-5)
    assert (reply.metadata.compute_chars, reply.metadata.compute_tokens) == (8, 5)
    assert await vector(client, "w1 w2 w3", normalize=True) == list(reply.embeddings)


async def test_embed_when_it_answers_then_the_parts_of_the_time_are_within_the_whole(client: Client):
    spent = (await client.embed.Embed(pb.EmbedRequest(inputs=words(*range(60))))).metadata
    parts = (spent.tokenization_time_ns, spent.queue_time_ns, spent.inference_time_ns)
    assert min(parts) > 0
    assert sum(parts) <= spent.total_time_ns < 60e9


@pytest.mark.parametrize(
    ("name", "prefix"), [("query", QUERY_PREFIX), ("passage", PASSAGE_PREFIX), ("document", PASSAGE_PREFIX)]
)
async def test_embed_when_a_prompt_is_named_then_the_cards_prefix_is_put_in_front(
    client: Client, name: str, prefix: str
):
    prompted = await client.embed.Embed(pb.EmbedRequest(inputs="w1", prompt_name=name))
    assert list(prompted.embeddings) == await vector(client, prefix + "w1")
    assert prompted.metadata.compute_tokens == 4
    assert prompted.metadata.compute_chars == 2


@pytest.mark.parametrize("name", ["", "classification"])
async def test_embed_when_the_prompt_is_unknown_then_invalid_argument(client: Client, name: str):
    code, reason, details = await failure(client.embed.Embed(pb.EmbedRequest(inputs="w1", prompt_name=name)))
    assert (code, reason) == (INVALID, "INVALID_REQUEST")
    assert details["BadRequest"].field_violations[0].field == "prompt_name"
    assert "query, passage, document" in details["BadRequest"].field_violations[0].description


@pytest.mark.parametrize("method", ["Embed", "EmbedSparse"])
async def test_embed_when_the_text_is_too_long_then_refused_unless_it_may_be_cut(client: Client, method: str):
    call = getattr(client.embed, method)
    request = getattr(pb, f"{method}Request")
    code, reason, details = await failure(call(request(inputs=LONG)))
    assert (code, reason) == (INVALID, "INPUT_TOO_LONG")
    assert details["BadRequest"].field_violations[0].field == "inputs"
    assert (await call(request(inputs=LONG, truncate=True))).metadata.compute_tokens == MAX_TOKENS


async def test_embed_when_it_is_cut_then_the_direction_says_where(client: Client):
    room = MAX_TOKENS - 2
    right = await vector(client, LONG, truncate=True)
    left = await vector(client, LONG, truncate=True, truncation_direction=pb.TRUNCATION_DIRECTION_LEFT)
    assert right == await vector(client, words(*range(room)))
    assert left == await vector(client, words(*range(70 - room, 70)))


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("number", [2, 77, -1])
async def test_embed_when_the_direction_is_unknown_then_invalid_argument(client: Client, number: int, truncate: bool):
    request = pb.EmbedRequest(inputs="w1", truncate=truncate, truncation_direction=number)
    code, reason, details = await failure(client.embed.Embed(request))
    assert (code, reason) == (INVALID, "INVALID_REQUEST")
    assert details["BadRequest"].field_violations[0].field == "truncation_direction"
    assert await vector(client, "w1")  # and the server lives


@pytest.mark.parametrize("text", ["", " \t\n"])
@pytest.mark.parametrize("method", ["Embed", "EmbedSparse", "EmbedAll"])
async def test_embed_when_the_text_is_empty_then_invalid_argument(client: Client, method: str, text: str):
    code, reason, _ = await failure(getattr(client.embed, method)(getattr(pb, f"{method}Request")(inputs=text)))
    assert (code, reason) == (INVALID, "EMPTY_INPUT")


async def test_embed_when_dimensions_are_given_then_cut_and_of_unit_length_again(client: Client):
    whole = np.array(await vector(client, "w1 w2"))
    cut = await vector(client, "w1 w2", dimensions=5)
    assert cut == approx((whole[:5] / np.linalg.norm(whole[:5])).tolist(), abs=1e-6)
    assert norm(cut) == approx(1, abs=1e-6)
    assert await vector(client, "w1 w2", dimensions=HIDDEN) == approx(whole.tolist())


@pytest.mark.parametrize("dimensions", [0, HIDDEN + 1])
async def test_embed_when_the_dimensions_are_out_of_range_then_invalid_argument(client: Client, dimensions: int):
    code, _, details = await failure(client.embed.Embed(pb.EmbedRequest(inputs="w1", dimensions=dimensions)))
    assert code is INVALID
    assert details["BadRequest"].field_violations[0].field == "dimensions"


async def test_embed_when_it_shall_not_be_normalised_then_refused_and_not_ignored(client: Client):
    code, _, details = await failure(client.embed.Embed(pb.EmbedRequest(inputs="w1", normalize=False)))
    assert code is INVALID
    assert details["BadRequest"].field_violations[0].field == "normalize"


async def test_embed_sparse_when_a_sparse_model_is_there_then_its_terms_by_index(client: Client):
    reply = await client.embed.EmbedSparse(pb.EmbedSparseRequest(inputs="w5 w1 w5"))
    terms = {value.index: value.value for value in reply.sparse_embeddings}
    assert list(terms) == sorted(terms)
    assert terms[9] == approx(np.log1p(2))
    assert terms[5] == approx(np.log1p(1))
    assert (reply.metadata.compute_chars, reply.metadata.compute_tokens) == (8, 5)


async def test_embed_sparse_when_the_default_model_gives_it_too_then_that_one(client: Client):
    first = engine_of(m3_card(name="tiny-m3"))
    async with served(embedding=Shelf(first, engine_of(dense_card()))) as other:
        reply = await other.embed.EmbedSparse(pb.EmbedSparseRequest(inputs="w5"))
        assert len(reply.sparse_embeddings) == 3
        whole = await other.embed.EmbedAll(pb.EmbedAllRequest(inputs="w5 w6"))
        assert [len(one.embeddings) for one in whole.token_embeddings] == [MULTI] * 4
        assert norm(whole.token_embeddings[1].embeddings) == approx(1, abs=1e-5)


async def test_embed_sparse_when_no_model_gives_it_then_failed_precondition():
    async with served(embedding=Shelf(engine_of(dense_card()))) as client:
        code, reason, _ = await failure(client.embed.EmbedSparse(pb.EmbedSparseRequest(inputs="w1")))
        assert (code, reason) == (PRECONDITION, "WRONG_MODEL_KIND")


async def test_embed_all_when_no_model_gives_token_vectors_then_failed_precondition(client: Client):
    code, reason, details = await failure(client.embed.EmbedAll(pb.EmbedAllRequest(inputs="w1")))
    assert (code, reason) == (PRECONDITION, "WRONG_MODEL_KIND")
    assert details["ErrorInfo"].metadata["output"] == "MULTI_VECTOR"


async def test_embed_stream_when_many_texts_are_sent_then_as_many_vectors_in_their_order(client: Client):
    texts = [words(n % 90, (n * 7) % 90) for n in range(600)]
    replies = await gathered(client.embed.EmbedStream(messages(*(pb.EmbedRequest(inputs=text) for text in texts))))
    assert len(replies) == 600
    for place in (0, 1, 299, 599):
        assert list(replies[place].embeddings) == await vector(client, texts[place])
    assert replies[5].metadata.compute_tokens == 4


async def test_embed_sparse_and_all_streams_when_texts_are_sent_then_they_answer_each():
    async with served(embedding=Shelf(engine_of(m3_card(name="tiny-m3")))) as client:
        sparse = [pb.EmbedSparseRequest(inputs="w1"), pb.EmbedSparseRequest(inputs="w1 w2")]
        found = await gathered(client.embed.EmbedSparseStream(messages(*sparse)))
        assert [len(reply.sparse_embeddings) for reply in found] == [3, 4]
        every = [pb.EmbedAllRequest(inputs="w1"), pb.EmbedAllRequest(inputs="w1 w2")]
        found = await gathered(client.embed.EmbedAllStream(messages(*every)))
        assert [len(reply.token_embeddings) for reply in found] == [3, 4]


async def test_embed_stream_when_a_text_is_bad_then_those_before_are_answered_and_the_status_says_why(client: Client):
    requests = [pb.EmbedRequest(inputs="w1"), pb.EmbedRequest(inputs=LONG), pb.EmbedRequest(inputs="w2")]
    stream = client.embed.EmbedStream(messages(*requests))
    replies: list[pb.EmbedResponse] = []

    async def read() -> None:
        async for reply in stream:
            replies.append(reply)

    code, reason, _ = await failure(read())
    assert (code, reason) == (INVALID, "INPUT_TOO_LONG")
    assert [list(reply.embeddings) for reply in replies] == [await vector(client, "w1")]


async def test_embed_stream_when_it_is_empty_then_it_ends_well(client: Client):
    assert await gathered(client.embed.EmbedStream(messages())) == []


async def test_embed_when_it_answers_then_headers_say_what_it_cost(client: Client):
    call = client.embed.Embed(pb.EmbedRequest(inputs="w1 w2"))
    reply = await call
    headers = {key: value for key, value in await call.initial_metadata() if key.startswith("x-")}
    assert headers == {
        "x-compute-type": "cpu",
        "x-compute-time": str(reply.metadata.total_time_ns // 1_000_000),
        "x-compute-characters": "5",
        "x-compute-tokens": "4",
        "x-total-time": str(reply.metadata.total_time_ns // 1_000_000),
        "x-tokenization-time": str(reply.metadata.tokenization_time_ns // 1_000_000),
        "x-queue-time": str(reply.metadata.queue_time_ns // 1_000_000),
        "x-inference-time": str(reply.metadata.inference_time_ns // 1_000_000),
    }


async def test_embed_when_the_model_gives_no_finite_value_then_an_error_and_no_nan():
    def broken(batch: object) -> None:
        raise RuntimeError("boom")

    async with served(embedding=Shelf(engine_of(dense_card(), before_run=broken))) as client:
        code, reason, _ = await failure(client.embed.Embed(pb.EmbedRequest(inputs="w1")))
        assert (code, reason) == (grpc.StatusCode.INTERNAL, "INFERENCE_FAILED")


async def test_embed_all_when_the_reply_is_larger_than_a_message_may_be_then_refused_with_the_sizes():
    async with served(embedding=Shelf(engine_of(m3_card(name="tiny-m3"))), max_reply_bytes=20 * MULTI * 4) as client:
        reply = await client.embed.EmbedAll(pb.EmbedAllRequest(inputs=words(*range(18))))
        assert len(reply.token_embeddings) == 20
        code, reason, _ = await failure(client.embed.EmbedAll(pb.EmbedAllRequest(inputs=words(*range(19)))))
        assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
