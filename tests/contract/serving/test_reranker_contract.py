"""The reranker: what a client sees is the same behind the product's own gRPC server and behind Ray Serve."""

from collections.abc import Iterator

import grpc
import pytest
from google.rpc import error_details_pb2
from pergamon.reranker.v1 import reranker_pb2 as pb

from tests.contract.serving.calls import OpenStream, Reranker, failure_of, key_to, rerank
from tests.contract.serving.room import filled, wait_for_room
from tests.helpers.models import RERANKER

pytestmark = pytest.mark.timeout(150)


@pytest.fixture
def reranker(reranker_channel: grpc.Channel) -> Iterator[Reranker]:
    """A server with room for every call."""
    reranker = Reranker(reranker_channel)
    wait_for_room(reranker)
    yield reranker
    wait_for_room(reranker)


def stream_of(*requests: pb.RerankRequest) -> Iterator[pb.RerankStreamRequest]:
    return (pb.RerankStreamRequest(id=str(number), request=request) for number, request in enumerate(requests))


def test_rerank_when_passages_are_good_then_all_of_them_best_first(reranker: Reranker) -> None:
    scores = reranker.call("Rerank", rerank("w1", "w2", "w3 w4", return_text=True)).scores
    assert {(score.index, score.text) for score in scores} == {(0, "w1"), (1, "w2"), (2, "w3 w4")}
    assert [score.logit for score in scores] == sorted((score.logit for score in scores), reverse=True)
    (best,) = reranker.call("Rerank", rerank("w1", "w2", "w3 w4", top_n=1)).scores
    assert best.index == scores[0].index


def test_rerank_when_a_passage_is_bad_then_it_alone_fails(reranker: Reranker) -> None:
    reply = reranker.call("Rerank", rerank("w1", " ", "w2"))
    assert {score.index for score in reply.scores} == {0, 2}
    assert [(failure.index, failure.error.reason) for failure in reply.failures] == [(1, "EMPTY_INPUT")]


@pytest.mark.parametrize(
    ("request_", "reason", "fields"),
    [
        (rerank("w1", query=" "), "EMPTY_INPUT", {"query"}),
        (rerank(), "INVALID_REQUEST", {"passages"}),
        (rerank(priority=9, long_query=8), "INVALID_REQUEST", {"passages", "priority", "long_query"}),
        (rerank(*["w1"] * 1001), "BATCH_TOO_LARGE", {"passages"}),
    ],
)
def test_rerank_when_the_request_is_wrong_then_every_violation_is_named(
    reranker: Reranker, request_: pb.RerankRequest, reason: str, fields: set[str]
) -> None:
    failure = failure_of(lambda: reranker.call("Rerank", request_))
    assert (failure.code, failure.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
    assert {each.field for each in failure.detail(error_details_pb2.BadRequest).field_violations} == fields


@pytest.mark.parametrize("method", ["Rerank", "GetModel"])
def test_any_method_when_the_model_is_unknown_then_reason_and_resource(reranker: Reranker, method: str) -> None:
    request = rerank("w1", model="no-such-model") if method == "Rerank" else pb.GetModelRequest(model="no-such-model")
    failure = failure_of(lambda: reranker.call(method, request))
    assert (failure.code, failure.reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")
    assert failure.detail(error_details_pb2.ResourceInfo).resource_name == "no-such-model"


def test_models_when_listed_then_each_can_be_asked_for(reranker: Reranker) -> None:
    names = [model.name for model in reranker.call("ListModels", pb.ListModelsRequest()).models]
    assert names == [RERANKER]
    assert reranker.call("GetModel", pb.GetModelRequest(model=RERANKER)).model.name == RERANKER


@pytest.mark.parametrize("method", ["Rerank", "RerankStream"])
def test_any_kind_when_the_key_is_wrong_then_unauthenticated_with_details(reranker: Reranker, method: str) -> None:
    def call() -> object:
        metadata = key_to("reranker", "wrong")
        if method == "Rerank":
            return reranker.call(method, rerank("w1"), metadata=metadata)
        return [*reranker.call(method, stream_of(rerank("w1")), metadata=metadata)]

    failure = failure_of(call)
    assert (failure.code, failure.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")


def test_stream_when_one_request_fails_then_its_reply_says_so_in_its_place(reranker: Reranker) -> None:
    requests = [rerank(*["w1 w2"] * (1 + 50 * (n % 2))) for n in range(12)]
    requests[5] = rerank("w1", model="no-such-model")
    replies = [*reranker.call("RerankStream", stream_of(*requests))]
    assert [reply.id for reply in replies] == [str(number) for number in range(12)]
    assert [reply.error.reason for reply in replies if reply.HasField("error")] == ["MODEL_NOT_FOUND"]
    assert [len(reply.response.scores) for reply in replies[:4]] == [1, 51, 1, 51]


def test_any_kind_when_the_server_is_full_then_overloaded_with_a_delay(reranker: Reranker) -> None:
    with filled(reranker):
        unary = failure_of(lambda: reranker.call("Rerank", rerank("w1")))
        streaming = failure_of(lambda: [*reranker.call("RerankStream", stream_of(rerank("w1")))])
    for failure in (unary, streaming):
        assert (failure.code, failure.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
        assert failure.detail(error_details_pb2.RetryInfo).retry_delay.ToMilliseconds() > 0
    wait_for_room(reranker)  # those that were cancelled have been let go


def test_stream_when_its_deadline_passes_then_deadline_exceeded_and_the_work_is_let_go(reranker: Reranker) -> None:
    stream = OpenStream(reranker, timeout=0.5)
    failure = failure_of(lambda: [*stream.replies])
    assert failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
