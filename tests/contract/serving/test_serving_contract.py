"""What a client sees is the same behind the product's own gRPC server and behind Ray Serve."""

import hashlib
from collections import Counter
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from pergamon.client import AsyncClient
from pergamon.embedder.v1 import embedder_pb2 as pb

from tests.contract.serving.calls import KEY, Embedder, OpenStream, embed, failure_of, stream_of
from tests.contract.serving.conftest import Serving
from tests.contract.serving.room import MAX_CALLS, filled, wait_for_room, wait_until_steady
from tests.helpers.inference import HIDDEN, word_tokenizer
from tests.helpers.keys import READER
from tests.helpers.models import DENSE, WIDE, WIDE_DIMENSIONS

pytestmark = pytest.mark.timeout(150)

#: So many that a stream holds a part of them.
_MANY = 250


@pytest.fixture
def embedder(channel: grpc.Channel) -> Iterator[Embedder]:
    """A server with room for every call: what the test before left behind is gone."""
    embedder = Embedder(channel)
    wait_for_room(embedder)
    yield embedder
    wait_for_room(embedder)


def test_unary_when_texts_are_good_then_rows_in_their_order(embedder: Embedder) -> None:
    reply = embedder.embed("w1 w2", "w3", "w1 w2")
    rows = np.frombuffer(reply.dense.data, "<f4").reshape(3, HIDDEN)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert np.array_equal(rows[0], rows[2])
    assert not np.array_equal(rows[0], rows[1])
    assert [report.token_count for report in reply.reports] == [4, 3, 4]


def test_unary_when_some_texts_are_bad_then_their_reports_say_so_and_the_others_have_vectors(
    embedder: Embedder,
) -> None:
    reply = embedder.embed("w1", " ", "w2 " * 80)
    assert [report.error.reason for report in reply.reports] == ["", "EMPTY_INPUT", "INPUT_TOO_LONG"]
    rows = np.frombuffer(reply.dense.data, "<f4").reshape(3, HIDDEN)
    assert [bool(row.any()) for row in rows] == [True, False, False]


def test_unary_when_the_request_is_wrong_then_every_violation_is_named(embedder: Embedder) -> None:
    request = embed("w1", input_type=99, truncation=98)
    failure = failure_of(lambda: embedder.call("Embed", request))
    assert (failure.code, failure.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    violations = failure.detail(error_details_pb2.BadRequest).field_violations
    assert {violation.field for violation in violations} == {"input_type", "truncation"}


def test_unary_when_the_model_is_unknown_then_reason_and_resource(embedder: Embedder) -> None:
    failure = failure_of(lambda: embedder.call("Embed", embed("w1", model="no-such-model")))
    assert (failure.code, failure.reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")
    assert failure.detail(error_details_pb2.ResourceInfo).resource_name == "no-such-model"
    assert failure.detail(error_details_pb2.ErrorInfo).domain == "pergamon.dev"


@pytest.mark.parametrize("method", ["Embed", "GetTokenizer", "EmbedStream"])
def test_any_kind_when_the_key_is_wrong_then_unauthenticated_with_details_and_no_reply(
    embedder: Embedder, method: str
) -> None:
    requests = {"Embed": embed("w1"), "GetTokenizer": pb.GetTokenizerRequest(), "EmbedStream": stream_of([embed("w1")])}
    metadata = (("authorization", "Bearer wrong"), *KEY[1:])

    def call() -> list[object]:
        reply = embedder.call(method, requests[method], metadata=metadata)
        return [reply] if method == "Embed" else [*reply]

    failure = failure_of(call)
    assert (failure.code, failure.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")


@pytest.mark.parametrize("method", ["Embed", "EmbedStream"])
def test_any_kind_when_it_succeeds_then_the_request_id_comes_back(channel: grpc.Channel, method: str) -> None:
    embedder, metadata = Embedder(channel), (*KEY, ("x-request-id", "a1b2"))
    if method == "Embed":
        stub = channel.unary_unary(
            "/pergamon.embedder.v1.EmbedderService/Embed",
            request_serializer=pb.EmbedRequest.SerializeToString,
            response_deserializer=pb.EmbedResponse.FromString,
        )
        _, call = stub.with_call(embed("w1"), timeout=20, metadata=metadata)
    else:
        call = embedder.call(method, stream_of([embed("w1")]), metadata=metadata)
        assert len([*call]) == 1
    assert dict(call.trailing_metadata())["x-request-id"] == "a1b2"


def test_unary_when_request_and_reply_exceed_the_usual_4_mib_then_both_arrive(embedder: Embedder) -> None:
    request = embed("x" * (6 << 20), *["w1"] * 1_000, model=WIDE)
    reply = embedder.call("Embed", request)
    assert reply.ByteSize() > 4 << 20
    assert [reply.reports[0].error.reason, reply.reports[-1].error.reason] == ["INPUT_TOO_LONG", ""]
    assert len(reply.dense.data) == 1_001 * WIDE_DIMENSIONS * 4


def test_unary_when_there_are_no_texts_or_too_many_then_the_field_is_named(embedder: Embedder) -> None:
    for request, reason in ((embed(), "INVALID_REQUEST"), (embed(*["w1"] * 1025), "BATCH_TOO_LARGE")):
        failure = failure_of(lambda request=request: embedder.call("Embed", request))
        assert (failure.code, failure.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
        assert [each.field for each in failure.detail(error_details_pb2.BadRequest).field_violations] == ["texts"]


def test_unary_when_its_deadline_is_too_short_then_deadline_exceeded(embedder: Embedder) -> None:
    texts = [f"w{number % 90} w{number // 90}" for number in range(1024)]  # one alone may be done by then
    failure = failure_of(lambda: embedder.embed(*texts, timeout=0.001))
    assert failure.code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_tokenize_when_asked_for_ids_then_as_many_as_counted(embedder: Embedder) -> None:
    reply = embedder.call("Tokenize", pb.TokenizeRequest(texts=["w1 w2", ""], include_ids=True))
    assert [(text.token_count, len(text.ids)) for text in reply.texts] == [(4, 4), (2, 2)]
    failure = failure_of(lambda: embedder.call("Tokenize", pb.TokenizeRequest(texts=["w1"], model="no-such-model")))
    assert (failure.code, failure.reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")


def test_models_when_listed_then_each_can_be_asked_for_and_others_cannot(embedder: Embedder) -> None:
    models = embedder.call("ListModels", pb.ListModelsRequest()).models
    assert models[0].name == DENSE
    for model in models:
        assert embedder.call("GetModel", pb.GetModelRequest(model=model.name)).model.name == model.name
    failure = failure_of(lambda: embedder.call("GetModel", pb.GetModelRequest(model="no-such-model")))
    assert (failure.code, failure.reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")


def test_server_stream_when_the_tokenizer_exists_then_its_bytes_arrive(embedder: Embedder) -> None:
    expected = word_tokenizer().to_str().encode()
    request = pb.GetTokenizerRequest(sha256=hashlib.sha256(expected).hexdigest())
    assert b"".join(piece.data for piece in embedder.call("GetTokenizer", request)) == expected


def test_server_stream_when_it_fails_before_its_first_reply_then_the_reason_arrives(embedder: Embedder) -> None:
    request = pb.GetTokenizerRequest(sha256="0" * 64)
    failure = failure_of(lambda: [*embedder.call("GetTokenizer", request)])
    assert (failure.code, failure.reason) == (grpc.StatusCode.NOT_FOUND, "TOKENIZER_NOT_FOUND")


def test_stream_when_requests_differ_in_size_then_replies_keep_their_order(embedder: Embedder) -> None:
    requests = [embed(*["w1 w2 w3"] * (1 + 40 * (number % 3))) for number in range(30)]
    replies = [*embedder.call("EmbedStream", stream_of(requests))]
    assert [reply.id for reply in replies] == [str(number) for number in range(30)]
    assert [len(reply.response.reports) for reply in replies] == [len(request.texts) for request in requests]


def test_stream_when_one_request_fails_then_its_reply_says_so_and_the_stream_goes_on(embedder: Embedder) -> None:
    requests = [embed("w1"), embed("w1", model="no-such-model"), embed(), embed("w2")]
    replies = [*embedder.call("EmbedStream", stream_of(requests))]
    assert [reply.error.reason for reply in replies] == ["", "MODEL_NOT_FOUND", "INVALID_REQUEST", ""]


def test_stream_when_the_client_does_not_read_then_it_is_held_up_and_nothing_is_lost(embedder: Embedder) -> None:
    """Requests of 100 kB and replies of 280 kB: what is in work and in all buffers on the way is far less than all."""
    sent = Counter[str]()
    request = embed(*["w1"] * 64, "x" * 100_000, model=WIDE)

    def requests() -> Iterator[pb.EmbedStreamRequest]:
        for number in range(_MANY):
            sent["requests"] += 1
            yield pb.EmbedStreamRequest(id=str(number), request=request)

    replies = embedder.call("EmbedStream", requests())
    wait_until_steady(lambda: sent["requests"])
    assert 0 < sent["requests"] < _MANY
    assert [reply.id for reply in replies] == [str(number) for number in range(_MANY)]


def test_stream_when_the_client_waits_for_each_reply_then_none_is_held_back(embedder: Embedder) -> None:
    stream = OpenStream(embedder)
    assert [stream.answer(name, "w1").id for name in ("a", "b", "c")] == ["a", "b", "c"]
    stream.close()
    assert [*stream.replies] == []


def test_any_kind_when_the_server_is_full_then_overloaded_with_a_delay(embedder: Embedder) -> None:
    with filled(embedder):
        unary = failure_of(lambda: embedder.embed("w1"))
        streaming = failure_of(lambda: [*embedder.call("EmbedStream", stream_of([embed("w1")]))])
    for failure in (unary, streaming):
        assert (failure.code, failure.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
        assert failure.detail(error_details_pb2.RetryInfo).retry_delay.ToMilliseconds() > 0


def test_stream_when_its_deadline_passes_then_deadline_exceeded_and_the_work_is_let_go(embedder: Embedder) -> None:
    streams = [OpenStream(embedder, timeout=1.0) for _ in range(MAX_CALLS)]
    for stream in streams:
        failure = failure_of(lambda stream=stream: [*stream.replies])
        assert failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_for_room(embedder)


def test_stream_when_the_client_cancels_then_the_work_is_let_go(embedder: Embedder) -> None:
    with filled(embedder):
        assert failure_of(lambda: embedder.embed("w1")).reason == "OVERLOADED"
    wait_for_room(embedder)


async def test_client_when_it_calls_then_the_server_knows_its_deadline(serving: Serving, embedder: Embedder) -> None:
    """Ray Serve hides the deadline of a call; what the client says in its metadata takes its place."""
    metadata = (*KEY, ("x-timeout-ms", "300"))
    if serving.kind == "ray":
        failure = failure_of(lambda: [*OpenStream(embedder, metadata=metadata).replies])
        assert (failure.code, failure.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
    else:
        stream = OpenStream(embedder, metadata=metadata)  # gRPC's own deadline is the one that counts
        assert stream.answer("a", "w1").id == "a"
        stream.close()
        assert [*stream.replies] == []


async def test_client_when_it_is_the_products_own_then_it_reaches_the_application(serving: Serving) -> None:
    async with AsyncClient(serving.target, api_key=READER) as client:
        reply = await client.embed(["w1"])
    assert reply.reports[0].token_count == 3
