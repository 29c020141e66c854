"""Field numbers and types as clients of text-embeddings-inference send and read them: bytes made by hand."""

import struct
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from services.tei.v1 import tei_pb2 as pb
from tests.helpers.tei import Client, messages

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

#: message -> {field number: (name, is it optional)}; the wire as it is documented.
FIELDS = {
    "InfoResponse": {
        1: "version", 2: "sha?", 3: "docker_label?", 4: "model_id", 5: "model_sha?", 6: "model_dtype", 7: "model_type",
        8: "max_concurrent_requests", 9: "max_input_length", 10: "max_batch_tokens", 11: "max_batch_requests?",
        12: "max_client_batch_size", 13: "tokenization_workers",
    },
    "Metadata": {
        1: "compute_chars", 2: "compute_tokens", 3: "total_time_ns", 4: "tokenization_time_ns", 5: "queue_time_ns",
        6: "inference_time_ns",
    },
    "EmbedRequest": {
        1: "inputs", 2: "truncate", 3: "normalize?", 4: "truncation_direction", 5: "prompt_name?", 6: "dimensions?",
    },
    "EmbedResponse": {1: "embeddings", 2: "metadata"},
    "EmbedSparseRequest": {1: "inputs", 2: "truncate", 3: "truncation_direction", 4: "prompt_name?"},
    "EmbedAllRequest": {1: "inputs", 2: "truncate", 3: "truncation_direction", 4: "prompt_name?"},
    "SparseValue": {1: "index", 2: "value"},
    "EmbedSparseResponse": {1: "sparse_embeddings", 2: "metadata"},
    "TokenEmbedding": {1: "embeddings"},
    "EmbedAllResponse": {1: "token_embeddings", 2: "metadata"},
    "PredictRequest": {1: "inputs", 2: "truncate", 3: "raw_scores", 4: "truncation_direction"},
    "PredictPairRequest": {1: "inputs", 2: "truncate", 3: "raw_scores", 4: "truncation_direction"},
    "Prediction": {1: "score", 2: "label"},
    "PredictResponse": {1: "predictions", 2: "metadata"},
    "RerankRequest": {
        1: "query", 2: "texts", 3: "truncate", 4: "raw_scores", 5: "return_text", 6: "truncation_direction",
    },
    "RerankStreamRequest": {
        1: "query", 2: "text", 3: "truncate", 4: "raw_scores", 5: "return_text", 6: "truncation_direction",
    },
    "Rank": {1: "index", 2: "text?", 3: "score"},
    "RerankResponse": {1: "ranks", 2: "metadata"},
    "EncodeRequest": {1: "inputs", 2: "add_special_tokens", 3: "prompt_name?"},
    "SimpleToken": {1: "id", 2: "text", 3: "special", 4: "start?", 5: "stop?"},
    "EncodeResponse": {1: "tokens"},
    "DecodeRequest": {1: "ids", 2: "skip_special_tokens"},
    "DecodeResponse": {1: "text"},
}  # fmt: skip

#: path -> (does the client stream, does the server)
METHODS = {
    "Info/Info": (False, False),
    "Embed/Embed": (False, False),
    "Embed/EmbedSparse": (False, False),
    "Embed/EmbedAll": (False, False),
    "Embed/EmbedStream": (True, True),
    "Embed/EmbedSparseStream": (True, True),
    "Embed/EmbedAllStream": (True, True),
    "Predict/Predict": (False, False),
    "Predict/PredictPair": (False, False),
    "Predict/PredictStream": (True, True),
    "Predict/PredictPairStream": (True, True),
    "Rerank/Rerank": (False, False),
    "Rerank/RerankStream": (True, False),
    "Tokenize/Tokenize": (False, False),
    "Tokenize/TokenizeStream": (True, True),
    "Tokenize/Decode": (False, False),
    "Tokenize/DecodeStream": (True, True),
}


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | VARINT) + varint(value)


def text(field: int, value: str) -> bytes:
    content = value.encode()
    return varint(field << 3 | BYTES) + varint(len(content)) + content


def read(message: bytes) -> Iterator[tuple[int, int, Any]]:
    """(field, wire type, value) of every field."""
    at = 0

    def taken() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = taken()
        kind = tag & 7
        if kind == VARINT:
            yield tag >> 3, kind, taken()
            continue
        size = {FIXED32: 4, FIXED64: 8}.get(kind) or taken()
        yield tag >> 3, kind, message[at : at + size]
        at += size


def floats(packed: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(packed) // 4}f", packed)


async def unary(client: Client, path: str, request: bytes) -> list[tuple[int, int, Any]]:
    call = client.channel.unary_unary(f"/tei.v1.{path}")
    return [*read(await call(request))]


def shown(field: Any) -> str:
    return field.name + ("?" if field.has_presence and field.message_type is None else "")


def test_messages_when_compared_with_the_documented_wire_then_every_number_and_name_is_the_same():
    found = {
        name: {field.number: shown(field) for field in message.fields}
        for name, message in pb.DESCRIPTOR.message_types_by_name.items()
    }
    assert found.pop("InfoRequest") == {}
    assert found == FIELDS


def test_enums_when_compared_with_the_documented_wire_then_the_same():
    found = {
        enum.name: {value.name: value.number for value in enum.values}
        for enum in pb.DESCRIPTOR.enum_types_by_name.values()
    }
    assert found == {
        "ModelType": {"MODEL_TYPE_EMBEDDING": 0, "MODEL_TYPE_CLASSIFIER": 1, "MODEL_TYPE_RERANKER": 2},
        "TruncationDirection": {"TRUNCATION_DIRECTION_RIGHT": 0, "TRUNCATION_DIRECTION_LEFT": 1},
    }


def test_methods_when_compared_with_the_documented_wire_then_the_same_kinds():
    found = {
        f"{service.name}/{method.name}": (method.client_streaming, method.server_streaming)
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert found == METHODS
    assert pb.DESCRIPTOR.package == "tei.v1"


async def test_embed_when_the_request_is_made_by_hand_then_every_field_is_understood(client: Client):
    long = " ".join(f"w{n}" for n in range(70))
    request = text(1, long) + number(2, 1) + number(3, 1) + number(4, 1) + text(5, "query") + number(6, 4)
    (first, kind, packed), (second, _, metadata) = await unary(client, "Embed/Embed", request)
    assert (first, kind, second) == (1, BYTES, 2)
    expected = pb.EmbedRequest(
        inputs=long, truncate=True, normalize=True, truncation_direction=1, prompt_name="query", dimensions=4
    )
    assert floats(packed) == tuple((await client.embed.Embed(expected)).embeddings)
    assert len(floats(packed)) == 4
    spent = {field: value for field, _, value in read(metadata)}
    assert (spent[1], spent[2]) == (len(long), 64)
    assert spent[3] >= spent[4] + spent[5] + spent[6]


async def test_embed_when_fields_are_sent_alone_then_each_has_its_effect(client: Client):
    bare = await unary(client, "Embed/Embed", text(1, "w1"))
    assert len(floats(bare[0][2])) == 32
    prompted = await unary(client, "Embed/Embed", text(1, "w1") + text(5, "query"))
    assert prompted[0][2] != bare[0][2]
    for wrong in (number(3, 0), number(4, 2), number(6, 0)):  # normalize, direction, dimensions
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(client, "Embed/Embed", text(1, "w1") + wrong)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_embed_sparse_when_the_request_is_made_by_hand_then_pairs_of_index_and_value(client: Client):
    long = " ".join(f"w{n}" for n in range(70))
    request = text(1, long) + number(2, 1) + number(3, 1) + text(4, "passage")
    *terms, (last, _, metadata) = await unary(client, "Embed/EmbedSparse", request)
    assert {field for field, _, _ in terms} == {1}
    assert last == 2
    first = [*read(terms[0][2])]
    assert [(field, kind) for field, kind, _ in first] == [(1, VARINT), (2, FIXED32)]
    assert len(terms) == {field: value for field, _, value in read(metadata)}[2] == 64


async def test_rerank_when_the_request_is_made_by_hand_then_ranks_with_index_text_and_score(client: Client):
    request = (
        text(1, "w1") + text(2, "w41") + text(2, "w43") + number(3, 1) + number(4, 1) + number(5, 1) + number(6, 1)
    )
    *ranks, (last, _, metadata) = await unary(client, "Rerank/Rerank", request)
    best, second = ([*read(rank)] for _, _, rank in ranks)
    assert best == [(1, VARINT, 1), (2, BYTES, b"w43"), (3, FIXED32, struct.pack("<f", 3))]
    assert second == [(2, BYTES, b"w41"), (3, FIXED32, struct.pack("<f", 1))]  # an index of 0 is not sent
    assert (last, [field for field, _, _ in read(metadata)][:2]) == (2, [1, 2])


async def test_rerank_stream_when_made_by_hand_then_one_reply(client: Client):
    call = client.channel.stream_unary("/tei.v1.Rerank/RerankStream")
    head = text(1, "w1") + text(2, "w41") + number(3, 1) + number(4, 1) + number(5, 1) + number(6, 1)
    reply = await call(messages(head, text(1, "w1") + text(2, "w43") + number(3, 1) + number(6, 1)))
    assert [*read(next(read(reply))[2])][1:] == [(2, BYTES, b"w43"), (3, FIXED32, struct.pack("<f", 3))]


async def test_tokenize_when_made_by_hand_then_tokens_with_places(client: Client):
    reply = await unary(client, "Tokenize/Tokenize", text(1, "w1 w2") + number(2, 1))
    tokens = [[*read(token)] for _, _, token in reply]
    assert tokens[0] == [(1, VARINT, 2), (2, BYTES, b"[CLS]"), (3, VARINT, 1)]
    assert tokens[2] == [(1, VARINT, 6), (2, BYTES, b"w2"), (4, VARINT, 3), (5, VARINT, 5)]
    prompted = await unary(client, "Tokenize/Tokenize", text(1, "w1") + text(3, "query"))
    assert len(prompted) == 2
    ids = b"\x02\x05\x03"
    decoded = await unary(client, "Tokenize/Decode", varint(1 << 3 | BYTES) + varint(len(ids)) + ids + number(2, 1))
    assert decoded == [(1, BYTES, b"w1")]


async def test_info_when_read_by_hand_then_each_value_has_its_number(client: Client):
    found = {field: value for field, _, value in await unary(client, "Info/Info", b"")}
    assert (found[4], found[8], found[9], found[10], found[11], found[12]) == (b"tiny", 1024, 64, 2048, 256, 8)
    assert 1 in found
    assert 13 in found
    assert 7 not in found  # EMBEDDING is 0
