"""The order of scores, what happens to long texts, the language guard: on a model that says what the test wants."""

import math

import pytest

from services.common.errors import Reason, ServiceError
from services.domain.scores import sigmoid
from services.inference.errors import EmptyInput, InferenceFailed, InputTooLong
from services.inference.types import Lane
from services.reranker.errors import LanguageNotSupported
from services.reranker.types import RerankReply
from tests.unit.reranker.reranker_builders import MAX_TOKENS, SEP, call, deadline, told, words

#: Of the query: half of what the special tokens leave.
MOST = (MAX_TOKENS - 3) // 2


def order(reply: RerankReply) -> list[int]:
    return [scored.index for scored in reply.scores]


async def test_rerank_when_logits_differ_then_best_first_and_top_n_keeps_the_best():
    engine, _ = told({10: -3.0, 11: 2.0, 12: 0.1})
    passages = [words(10), words(11), words(12)]
    assert order(await engine.rerank(call(*passages), deadline())) == [1, 2, 0]
    assert order(await engine.rerank(call(*passages, top_n=2), deadline())) == [1, 2]


@pytest.mark.parametrize("top_n", [3, 4, 4_000_000_000])
async def test_rerank_when_top_n_is_not_below_the_number_of_passages_then_all_come(top_n: int):
    engine, _ = told({10: 1.0})
    assert order(await engine.rerank(call(words(11), words(10), words(12), top_n=top_n), deadline())) == [1, 0, 2]


@pytest.mark.parametrize("sign", [1, -1])
async def test_rerank_when_probabilities_are_saturated_then_the_logits_decide(sign: int):
    logits = {10: sign * 88.5, 11: sign * 88.5 + 1e-5, 12: sign * 900.0, 13: sign * 100.0}
    engine, _ = told(logits)
    reply = await engine.rerank(call(*[words(word) for word in logits]), deadline())
    probabilities = {scored.score.probability for scored in reply.scores}
    assert len(probabilities) < 4 if sign > 0 else min(probabilities) == 0
    assert order(reply) == ([2, 3, 1, 0] if sign > 0 else [1, 0, 3, 2])


async def test_rerank_when_passages_are_the_same_or_score_the_same_then_the_order_of_the_request_stands():
    engine, _ = told({10: 1.5, 11: 1.5, 12: 2.0})
    passages = [words(11), words(10), words(12), words(10), words(11), words(12)]
    reply = await engine.rerank(call(*passages), deadline())
    assert order(reply) == [2, 5, 0, 1, 3, 4]


async def test_rerank_when_the_model_says_no_number_then_that_passage_fails_and_no_score_is_nan():
    engine, _ = told({10: math.nan, 11: math.inf, 12: 1.0})
    reply = await engine.rerank(call(words(10), words(11), words(12), words(13)), deadline())
    assert order(reply) == [2, 3]
    assert all(math.isfinite(scored.score.logit + scored.score.probability) for scored in reply.scores)
    assert [(failed.index, type(failed.error)) for failed in reply.failures] == [
        (0, InferenceFailed), (1, InferenceFailed)
    ]  # fmt: skip


async def test_rerank_when_a_passage_is_too_long_then_it_is_cut_and_flagged_alone():
    engine, registry = told()
    reply = await engine.rerank(call(words(*range(20, 50)), words(5)), deadline())
    assert {scored.index: scored.truncated for scored in reply.scores} == {0: True, 1: False}
    assert [len(pair) for pair in sorted(registry.backend.seen, key=len)] == [5, MAX_TOKENS]
    assert not reply.query_truncated


async def test_rerank_when_cutting_passages_is_off_then_the_long_one_fails_alone():
    engine, _ = told()
    reply = await engine.rerank(call(words(*range(20, 50)), " ", words(5), cut_passages=False), deadline())
    assert order(reply) == [2]
    assert [(failed.index, type(failed.error)) for failed in reply.failures] == [(0, InputTooLong), (1, EmptyInput)]


async def test_rerank_when_the_query_is_longer_than_half_then_its_end_is_cut_for_all_passages():
    engine, registry = told()
    reply = await engine.rerank(call(words(5), words(*range(20, 50)), query=words(*range(60, 90))), deadline())
    assert reply.query_truncated
    assert {scored.index: scored.truncated for scored in reply.scores} == {0: False, 1: True}
    queries = [pair[1 : pair.index(SEP)] for pair in registry.backend.seen]
    assert queries == [[4 + word for word in range(60, 60 + MOST)]] * 2


@pytest.mark.parametrize("cut", [True, False])
async def test_rerank_when_the_query_fills_its_half_then_nothing_happens_to_it(cut: bool):
    engine, registry = told()
    reply = await engine.rerank(call(words(5), query=words(*range(60, 60 + MOST)), cut_query=cut), deadline())
    assert not reply.query_truncated
    assert [len(pair) for pair in registry.backend.seen] == [MOST + 1 + 3]


async def test_rerank_when_cutting_the_query_is_off_then_the_call_fails_before_any_work():
    engine, registry = told()
    with pytest.raises(InputTooLong) as caught:
        await engine.rerank(call(words(5), query=words(*range(60, 61 + MOST)), cut_query=False), deadline())
    assert caught.value.metadata == {"max_tokens": str(MOST), "token_count": str(MOST + 1)}
    assert registry.backend.seen == []


@pytest.mark.parametrize(
    ("languages", "language", "unsupported"),
    [(("en",), "en", False), (("en",), "de", True), (("en",), "", False), ((), "de", False)],
)
async def test_rerank_when_a_language_is_named_then_the_reply_says_whether_the_card_claims_it(
    languages: tuple[str, ...], language: str, unsupported: bool
):
    engine, _ = told(languages=languages)
    reply = await engine.rerank(call(words(5), language=language), deadline())
    assert (reply.language_unsupported, order(reply)) == (unsupported, [0])


async def test_rerank_when_the_language_is_required_and_not_claimed_then_refused_before_the_model_is_loaded():
    engine, registry = told(languages=("en", "de"))
    with pytest.raises(LanguageNotSupported) as caught:
        await engine.rerank(call(words(5), language="zh", require_language=True), deadline())
    assert caught.value.error_reason is Reason.LANGUAGE_NOT_SUPPORTED
    assert caught.value.metadata == {"model": "tiny", "language": "zh", "allowed": "en, de"}
    assert registry.loads == 0
    assert order(await engine.rerank(call(words(5), language="de", require_language=True), deadline())) == [0]


async def test_rerank_when_client_and_priority_are_known_then_it_takes_that_turn_in_that_lane():
    engine, registry = told()
    await engine.rerank(call(words(5), lane=Lane.BULK), deadline(), client="acme/key")
    await engine.rerank(call(words(5)), deadline())
    assert registry.turns == [("acme/key", Lane.BULK), ("", Lane.INTERACTIVE)]


async def test_rerank_when_the_whole_batch_is_bad_then_failures_and_no_error():
    engine, _ = told()
    reply = await engine.rerank(call("", "\n"), deadline())
    assert (reply.scores, [failed.index for failed in reply.failures]) == ((), [0, 1])


async def test_rerank_when_the_model_is_closed_then_the_call_or_its_passages_say_so():
    engine, registry = told()
    await registry.aclose()
    try:
        reply = await engine.rerank(call(words(5)), deadline())
    except ServiceError as error:
        assert error.error_reason is Reason.SHUTTING_DOWN
    else:
        assert [failed.error.error_reason for failed in reply.failures] == [Reason.SHUTTING_DOWN]


@pytest.mark.parametrize("logit", [0.0, 1e-9, 0.5, 20.0, 700.0, 1e30])
def test_sigmoid_when_far_from_zero_then_exact_in_double_and_never_an_overflow(logit: float):
    upper, lower = sigmoid(logit), sigmoid(-logit)
    assert 0 <= lower <= 0.5 <= upper <= 1
    assert upper + lower == pytest.approx(1, abs=1e-15)
