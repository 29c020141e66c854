"""tei.v1.Tokenize: pieces and their places, decoding, and what is refused."""

import grpc
import pytest

from services.tei.tokenize import MAX_SIZE
from services.tei.v1 import tei_pb2 as pb
from tests.helpers.inference import VOCABULARY
from tests.helpers.tei import Client, failure, gathered, messages, words

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def seen(reply: pb.EncodeResponse) -> list[tuple[int, str, bool, int | None, int | None]]:
    return [
        (
            token.id, token.text, token.special,
            token.start if token.HasField("start") else None, token.stop if token.HasField("stop") else None,
        )
        for token in reply.tokens
    ]  # fmt: skip


async def test_tokenize_when_specials_are_wanted_then_they_are_marked_and_have_no_place(client: Client):
    reply = await client.tokenize.Tokenize(pb.EncodeRequest(inputs="w1  w20", add_special_tokens=True))
    assert seen(reply) == [
        (2, "[CLS]", True, None, None),
        (5, "w1", False, 0, 2),
        (24, "w20", False, 4, 7),
        (3, "[SEP]", True, None, None),
    ]


async def test_tokenize_when_letters_take_several_bytes_then_places_count_characters(client: Client):
    reply = await client.tokenize.Tokenize(pb.EncodeRequest(inputs="žluťoučký w1"))
    assert seen(reply) == [(1, "žluťoučký", False, 0, 9), (5, "w1", False, 10, 12)]


async def test_tokenize_when_a_prompt_is_named_then_it_is_part_of_the_text(client: Client):
    reply = await client.tokenize.Tokenize(pb.EncodeRequest(inputs="w1", prompt_name="query"))
    assert seen(reply) == [(84, "w80", False, 0, 3), (5, "w1", False, 4, 6)]
    code, _, _ = await failure(client.tokenize.Tokenize(pb.EncodeRequest(inputs="w1", prompt_name="x")))
    assert code is INVALID


async def test_tokenize_when_the_text_is_longer_than_the_models_input_then_it_is_not_cut(client: Client):
    text = words(*(n % 90 for n in range(3_000)))
    reply = await client.tokenize.Tokenize(pb.EncodeRequest(inputs=text))
    assert len(reply.tokens) == 3_000
    assert reply.tokens[-1].stop == len(text) > 4_000


async def test_decode_when_specials_are_skipped_then_only_words_are_left(client: Client):
    ids = [2, 5, 24, 3]
    assert (await client.tokenize.Decode(pb.DecodeRequest(ids=ids))).text == "[CLS] w1 w20 [SEP]"
    assert (await client.tokenize.Decode(pb.DecodeRequest(ids=ids, skip_special_tokens=True))).text == "w1 w20"


async def test_tokenize_streams_when_requests_come_then_each_is_answered_in_order(client: Client):
    encodes = [pb.EncodeRequest(inputs=words(n)) for n in range(20)]
    replies = await gathered(client.tokenize.TokenizeStream(messages(*encodes)))
    assert [reply.tokens[0].text for reply in replies] == [words(n) for n in range(20)]
    decodes = [pb.DecodeRequest(ids=[n + 4]) for n in range(20)]
    texts = await gathered(client.tokenize.DecodeStream(messages(*decodes)))
    assert [reply.text for reply in texts] == [words(n) for n in range(20)]


@pytest.mark.parametrize(
    ("method", "request_", "reason"),
    [
        ("Tokenize", pb.EncodeRequest(), "EMPTY_INPUT"),
        ("Tokenize", pb.EncodeRequest(inputs="x" * (MAX_SIZE + 1)), "INPUT_TOO_LONG"),
        ("Decode", pb.DecodeRequest(), "EMPTY_INPUT"),
        ("Decode", pb.DecodeRequest(ids=[5] * (MAX_SIZE + 1)), "INPUT_TOO_LONG"),
        ("Decode", pb.DecodeRequest(ids=[5, VOCABULARY]), "INVALID_REQUEST"),
        ("Decode", pb.DecodeRequest(ids=[2**32 - 1]), "INVALID_REQUEST"),
    ],
    ids=["no text", "long text", "no ids", "many ids", "id beyond the vocabulary", "largest id"],
)
async def test_tokenize_when_the_request_is_wrong_then_invalid_argument(
    client: Client, method: str, request_: object, reason: str
):
    code, found, details = await failure(getattr(client.tokenize, method)(request_))
    assert (code, found) == (INVALID, reason)
    assert details["BadRequest"].field_violations
