"""The reranker as a server with its real model: who wins, what is cut, what is refused, and streams of requests."""

import asyncio
import math
import queue
from collections.abc import AsyncIterator, Iterator

import pytest
from pergamon.client import (
    AsyncClient,
    Client,
    FailedPreconditionError,
    InvalidRequestError,
    LongTextPolicy,
    Priority,
    RerankStreamRequest,
    Targets,
    rerank_request,
)
from pergamon.reranker.v1 import reranker_pb2 as pb

from services.common.settings import default_models_dir
from tests.helpers.servers import Server, settings_in

MODEL = "ms-marco-minilm-l12"
#: Half of what the special tokens leave of the model's 512.
MOST_QUERY_TOKENS = 254
#: Logits of one pair in different batches.
CLOSE = 0.05
FAIL = LongTextPolicy.LONG_TEXT_POLICY_FAIL

QUESTION = "What is the capital of France?"
PARIS = "Paris is the capital and the most populous city of France."
PASSAGES = [
    "Bananas are rich in potassium and grow in the tropics.",
    PARIS,
    "Berlin is the capital of Germany.",
    "France is known for its wine and its cheese.",
]
#: 600 words that say nothing about the question.
NOISE = "the weather was mild and the road was long " * 67


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    told = settings_in(
        tmp_path_factory.mktemp("reranker"),
        PERGAMON_MODELS_DIR=str(default_models_dir()),
        PERGAMON_PULL_MODELS="true",
        PERGAMON_RERANKER_MODELS=MODEL,
        PERGAMON_BACKEND="openvino",
        PERGAMON_THREADS="2",
    )
    server = Server("reranker", told)
    try:
        server.wait_until_ready()
        yield server.target
    finally:
        server.kill()


@pytest.fixture
async def client(target: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(target, targets=Targets(reranker=target), timeout_s=60) as opened:
        yield opened


def logits(reply: pb.RerankResponse) -> dict[int, float]:
    return {score.index: score.logit for score in reply.scores}


def order(reply: pb.RerankResponse) -> list[int]:
    return [score.index for score in reply.scores]


async def test_rerank_when_one_passage_answers_then_it_comes_first_with_a_high_label(client: AsyncClient) -> None:
    reply = await client.rerank(QUESTION, PASSAGES, return_text=True)
    assert sorted(order(reply)) == [0, 1, 2, 3]
    best, worst = reply.scores[0], reply.scores[-1]
    assert (best.text, best.label) == (PARIS, pb.RELEVANCE_LABEL_HIGH)
    assert (worst.text, worst.label) == (PASSAGES[0], pb.RELEVANCE_LABEL_LOW)
    assert best.probability == pytest.approx(1 / (1 + math.exp(-best.logit)), rel=1e-6)
    assert not (reply.query_truncated or reply.language_unsupported or reply.failures)
    assert (reply.model, reply.token_count > 60, reply.timing.total_ms > 0) == (MODEL, True, True)


async def test_rerank_when_top_n_is_more_than_there_are_then_all_and_fewer_are_the_start_of_them(
    client: AsyncClient,
) -> None:
    everything = order(await client.rerank(QUESTION, PASSAGES))
    assert order(await client.rerank(QUESTION, PASSAGES, top_n=50)) == everything
    assert order(await client.rerank(QUESTION, PASSAGES, top_n=2)) == everything[:2]


async def test_rerank_when_it_is_bulk_alone_or_among_many_then_the_logits_are_the_same(client: AsyncClient) -> None:
    few = logits(await client.rerank(QUESTION, PASSAGES))
    many = logits(await client.rerank(QUESTION, [*PASSAGES, *[NOISE[: 20 * n + 10] for n in range(40)]]))
    bulk = logits(await client.rerank(QUESTION, PASSAGES, priority=Priority.PRIORITY_BULK))
    alone = [logits(await client.rerank(QUESTION, [passage]))[0] for passage in PASSAGES]
    for index, logit in few.items():
        assert [many[index], bulk[index], alone[index]] == pytest.approx([logit] * 3, abs=CLOSE)


async def test_rerank_when_a_passage_comes_several_times_then_its_copies_tie_in_the_order_of_the_request(
    client: AsyncClient,
) -> None:
    passages = [text for n in range(40) for text in (PARIS, NOISE[: 30 * n + 10], PASSAGES[2])]
    reply = await client.rerank(QUESTION, passages)
    for copies in (range(0, 120, 3), range(2, 120, 3)):
        assert [index for index in order(reply) if index in copies] == list(copies)
        assert len({logits(reply)[index] for index in copies}) == 1


async def test_rerank_when_passages_are_odd_then_each_ends_once_and_no_score_is_nan(client: AsyncClient) -> None:
    passages = [
        "\N{GRINNING FACE}" * 50, "\x00\x01\x02", "a" * 20_000, "\u200b", "\u202eabc", "第十二条 " * 300,
        "", " \t\u3000", "[SEP] [CLS] [MASK] [PAD]", "\ufffd", "e\u0301" * 100, "0" * 400 + " 1",
    ]  # fmt: skip
    reply = await client.rerank(QUESTION, passages)
    assert sorted([*order(reply), *[failed.index for failed in reply.failures]]) == list(range(len(passages)))
    assert [(failed.index, failed.error.reason) for failed in reply.failures] == [
        (6, "EMPTY_INPUT"),
        (7, "EMPTY_INPUT"),
    ]
    assert all(math.isfinite(score.logit) and 0 <= score.probability <= 1 for score in reply.scores)


async def test_rerank_when_a_passage_is_too_long_then_its_end_does_not_count_and_it_alone_is_flagged(
    client: AsyncClient,
) -> None:
    reply = await client.rerank(QUESTION, [f"{PARIS} {NOISE}", f"{PARIS} {NOISE} {NOISE * 30}", PARIS])
    assert {score.index: score.truncated for score in reply.scores} == {0: True, 1: True, 2: False}
    assert logits(reply)[0] == pytest.approx(logits(reply)[1], abs=CLOSE)


async def test_rerank_when_long_passages_shall_fail_then_only_they_do(client: AsyncClient) -> None:
    reply = await client.rerank(QUESTION, [NOISE, PARIS, NOISE * 100], long_passages=FAIL)
    assert order(reply) == [1]
    assert [(failed.index, failed.error.reason) for failed in reply.failures] == [
        (0, "INPUT_TOO_LONG"), (2, "INPUT_TOO_LONG"),
    ]  # fmt: skip


async def test_rerank_when_the_query_is_too_long_then_its_beginning_is_judged_and_the_reply_says_so(
    client: AsyncClient,
) -> None:
    long = f"{QUESTION} {NOISE}"
    reply = await client.rerank(long, [*PASSAGES, NOISE])
    longer = await client.rerank(f"{long} Bananas are rich in potassium. {NOISE * 8}", [*PASSAGES, NOISE])
    assert reply.query_truncated
    assert longer.query_truncated
    assert logits(longer) == pytest.approx(logits(reply), abs=CLOSE)
    assert order(reply).index(1) < order(reply).index(0)
    assert [score.index for score in reply.scores if score.truncated] == [4]


async def test_rerank_when_the_query_takes_just_its_half_then_it_is_not_cut_and_one_word_more_is(
    client: AsyncClient,
) -> None:
    fitting, above = ("road " * count for count in (MOST_QUERY_TOKENS, MOST_QUERY_TOKENS + 1))
    whole = await client.rerank(fitting, [PARIS], long_query=FAIL)
    cut = await client.rerank(above, [PARIS])
    assert (whole.query_truncated, cut.query_truncated) == (False, True)
    assert cut.token_count == whole.token_count
    assert logits(cut) == pytest.approx(logits(whole), abs=CLOSE)
    with pytest.raises(InvalidRequestError) as caught:
        await client.rerank(above, [PARIS], long_query=FAIL)
    assert caught.value.reason == "INPUT_TOO_LONG"
    assert {caught.value.metadata[key] for key in ("max_tokens", "token_count")} == {"254", "255"}


@pytest.mark.parametrize(("language", "unsupported"), [("", False), ("en", False), ("en-US", False), ("zh", True)])
async def test_rerank_when_a_language_is_named_then_the_reply_says_whether_the_card_claims_it(
    client: AsyncClient, language: str, unsupported: bool
) -> None:
    reply = await client.rerank(QUESTION, PASSAGES, language=language)
    assert (reply.language_unsupported, order(reply)[0]) == (unsupported, 1)


async def test_rerank_when_the_language_is_required_and_not_claimed_then_refused(client: AsyncClient) -> None:
    with pytest.raises(FailedPreconditionError) as caught:
        await client.rerank("法国的首都是哪里?", PASSAGES, language="zh", require_language=True)
    assert (caught.value.reason, caught.value.metadata["allowed"]) == ("LANGUAGE_NOT_SUPPORTED", "en")


async def test_stream_when_requests_are_mixed_then_answers_in_order_equal_those_of_single_calls(
    client: AsyncClient,
) -> None:
    long = [f"{PARIS} {NOISE}", *PASSAGES * 8]
    asked = [
        rerank_request(QUESTION, long), rerank_request(QUESTION, PASSAGES), rerank_request(QUESTION, []),
        rerank_request(NOISE, PASSAGES, long_query=FAIL), rerank_request(QUESTION, PASSAGES, model="no-such-model"),
        rerank_request(QUESTION, PASSAGES, language="zh", require_language=True),
        rerank_request("Where do bananas grow?", PASSAGES, top_n=1, priority=Priority.PRIORITY_BULK),
    ]  # fmt: skip

    async def requests() -> AsyncIterator[RerankStreamRequest]:
        for turn in range(4):
            for number, request in enumerate(asked):
                yield RerankStreamRequest(id=f"{turn}-{number}", request=request)

    replies = [reply async for reply in client.rerank_stream(requests())]
    assert [reply.id for reply in replies] == [f"{turn}-{number}" for turn in range(4) for number in range(7)]
    reasons = ["", "", "INVALID_REQUEST", "INPUT_TOO_LONG", "MODEL_NOT_FOUND", "LANGUAGE_NOT_SUPPORTED", ""]
    assert [reply.error.reason for reply in replies] == reasons * 4
    alone = logits(await client.rerank(QUESTION, PASSAGES))
    for reply in replies[1::7]:
        assert logits(reply.response) == pytest.approx(alone, abs=CLOSE)
    assert [order(reply.response) for reply in replies[6::7]] == [[0]] * 4


async def test_stream_when_the_client_blocks_and_waits_for_each_reply_then_none_is_held_back(target: str) -> None:
    def in_a_thread() -> list[str]:
        arrived: queue.SimpleQueue[str] = queue.SimpleQueue()

        def requests() -> Iterator[RerankStreamRequest]:
            for number in range(3):
                yield RerankStreamRequest(id=str(number), request=rerank_request(QUESTION, PASSAGES))
                assert arrived.get(timeout=30) == str(number)

        received: list[str] = []
        with Client(target, targets=Targets(reranker=target), timeout_s=60) as blocking:
            for reply in blocking.rerank_stream(requests()):
                received.append(reply.id)
                arrived.put(reply.id)
        return received

    assert await asyncio.to_thread(in_a_thread) == ["0", "1", "2"]
