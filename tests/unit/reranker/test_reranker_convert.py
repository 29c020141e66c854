"""Requests of the wire: defaults, every violation at once, language tags; and what a reply says."""

from typing import Any

import pytest
from pergamon.client import Priority
from pergamon.embedder.v1 import embedder_pb2
from pergamon.reranker.v1 import reranker_pb2 as pb

from services.common.errors import InvalidRequest, Reason, ServiceError
from services.domain.scores import RelevanceLabel, RerankScore
from services.inference.errors import InputTooLong
from services.inference.types import Lane
from services.reranker.convert import rerank_in, rerank_out
from services.reranker.types import FailedPassage, RerankCall, RerankReply, ScoredPassage
from tests.unit.reranker.reranker_builders import call, request


def taken(*passages: str, **fields: Any) -> RerankCall:
    return rerank_in(request(*passages, **fields), max_passages=3)


def refusal(*passages: str, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        taken(*passages, **fields)
    return caught.value


def test_rerank_in_when_only_query_and_passages_are_set_then_interactive_and_everything_is_cut():
    assert taken("a") == call("a", lane=Lane.INTERACTIVE, cut_passages=True, cut_query=True, language="")


def test_rerank_in_when_all_is_said_then_all_arrives():
    asked = taken(
        "a", "b", model="m", top_n=2, return_text=True, priority=pb.PRIORITY_BULK,
        long_passages=pb.LONG_TEXT_POLICY_FAIL, long_query=pb.LONG_TEXT_POLICY_FAIL, language="de",
        require_language=True,
    )  # fmt: skip
    assert asked == call(
        "a", "b", model="m", top_n=2, return_text=True, lane=Lane.BULK, cut_passages=False, cut_query=False,
        language="de", require_language=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "understood"), [("en", "en"), ("EN", "en"), ("pt-BR", "pt"), ("zh_Hans_CN", "zh"), ("yue", "yue")]
)
def test_rerank_in_when_the_language_is_a_tag_then_its_head_counts(said: str, understood: str):
    assert taken("a", language=said).language == understood


@pytest.mark.parametrize("said", ["english", "e", "en;drop", "12", "en-", " en", "e" * 5_000])
def test_rerank_in_when_the_language_is_no_code_then_says_so_in_short(said: str):
    refused = refusal("a", language=said)
    assert [violation.field for violation in refused.violations] == ["language"]
    assert len(refused.message) < 200


def test_rerank_in_when_a_language_is_required_and_none_is_named_then_refused():
    assert [violation.field for violation in refusal("a", require_language=True).violations] == ["language"]


def test_rerank_in_when_several_fields_are_wrong_then_each_is_named():
    refused = refusal(query="q" * 40_000, priority=9, long_passages=8, long_query=7, language="?")
    named = [violation.field for violation in refused.violations]
    assert named == ["passages", "query", "priority", "long_passages", "long_query", "language"]
    assert refused.error_reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("passages", "query", "reason"),
    [(("a",), " \n", Reason.EMPTY_INPUT), (("a",) * 4, "q", Reason.BATCH_TOO_LARGE)],
)
def test_rerank_in_when_the_query_is_blank_or_there_are_too_many_passages_then_a_reason_of_its_own(
    passages: tuple[str, ...], query: str, reason: Reason
):
    assert refusal(*passages, query=query).error_reason is reason


def test_rerank_out_when_there_are_scores_failures_and_flags_then_all_are_on_the_wire():
    score = RerankScore(logit=0.75, probability=0.68, label=RelevanceLabel.HIGH)
    reply = RerankReply(
        model="m",
        scores=(ScoredPassage(index=1, score=score, truncated=True),),
        failures=(FailedPassage(index=0, error=InputTooLong("too long")),),
        query_truncated=True, language_unsupported=True, token_count=9, tokenize_ms=1, queue_ms=2, inference_ms=3,
        total_ms=7,
    )  # fmt: skip
    sent = rerank_out(call("a", "b", return_text=True), reply, max_bytes=1 << 20)
    assert (sent.query_truncated, sent.language_unsupported, sent.model, sent.token_count) == (True, True, "m", 9)
    (first,) = sent.scores
    assert (first.index, first.logit, first.label, first.truncated, first.text) == (
        1, 0.75, pb.RELEVANCE_LABEL_HIGH, True, "b",
    )  # fmt: skip
    assert [(failed.index, failed.error.code, failed.error.reason) for failed in sent.failures] == [
        (0, 3, "INPUT_TOO_LONG")
    ]


def test_priority_when_it_is_the_embedders_then_it_means_the_same():
    assert dict(pb.Priority.items()) == dict(embedder_pb2.Priority.items())
    assert taken("a", priority=int(Priority.PRIORITY_BULK)).lane is Lane.BULK


def test_rerank_out_when_the_texts_are_more_than_a_reply_holds_then_it_says_so():
    score = RerankScore(logit=1.0, probability=0.7, label=RelevanceLabel.HIGH)
    reply = RerankReply(
        model="m", scores=(ScoredPassage(index=0, score=score, truncated=False),), failures=(), query_truncated=False,
        language_unsupported=False, token_count=3, tokenize_ms=0, queue_ms=0, inference_ms=0, total_ms=0,
    )  # fmt: skip
    asked = call("x" * 20_000, return_text=True)
    assert rerank_out(asked, reply, max_bytes=30_000).scores[0].text == asked.passages[0]
    with pytest.raises(ServiceError) as caught:
        rerank_out(asked, reply, max_bytes=20_000)
    assert caught.value.error_reason is Reason.MESSAGE_TOO_LARGE
