"""The parts of tei.v1 that need no server: groups of a stream, which model gives what, headers, remembered health."""

from collections.abc import AsyncIterator

import pytest

from services.common.clock import FakeClock
from services.common.errors import InvalidRequest, Reason
from services.common.health import Remembered
from services.inference.cards import ModelKind
from services.inference.engine import InferenceTiming
from services.inference.errors import WrongModelKind
from services.inference.types import Output
from services.tei import groups
from services.tei.convert import Spent
from services.tei.headers import headers_of
from services.tei.v1 import tei_pb2 as pb
from tests.helpers.inference import card, m3_card
from tests.helpers.tei import Shelf, dense_card, engine_of, messages


def one(text: str, query: str = "q", *, truncate: bool = False) -> pb.RerankStreamRequest:
    return pb.RerankStreamRequest(query=query, text=text, truncate=truncate)


async def test_grouped_when_messages_follow_one_another_then_alike_ones_go_together_up_to_a_size():
    alike = [one(str(n)) for n in range(70)]
    stream = messages(*alike, one("a", truncate=True), one("b", "other", truncate=True), one("c", "other"))
    found = [(group.first, len(group.texts)) async for group in groups.grouped(stream, max_texts=100)]
    assert found == [(0, 64), (64, 6), (70, 1), (71, 1), (72, 1)]


@pytest.mark.parametrize(("most_texts", "most_bytes"), [(2, 10_000), (10, 20)])
async def test_grouped_when_the_stream_is_too_large_then_refused_without_reading_on(
    most_texts: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(groups, "MOST_BYTES", most_bytes)
    read: list[int] = []

    async def forever() -> AsyncIterator[pb.RerankStreamRequest]:
        while True:
            read.append(1)
            yield one("text")

    with pytest.raises(InvalidRequest) as caught:
        _ = [group async for group in groups.grouped(forever(), max_texts=most_texts)]
    assert caught.value.error_reason is Reason.BATCH_TOO_LARGE
    assert len(read) <= 3


async def test_offer_when_asked_for_an_output_then_the_first_configured_model_that_gives_it():
    terms, both = card(ModelKind.SPARSE, name="terms"), m3_card(name="both")
    shelf = Shelf(engine_of(dense_card()), engine_of(terms), engine_of(both))
    assert await shelf.offer("tiny", "both", "terms").name_giving(Output.SPARSE) == "both"
    assert await shelf.offer("terms", "tiny").name_giving(Output.DENSE) == "tiny"
    for engine in shelf.engines.values():
        await engine.aclose()


async def test_offer_when_no_configured_model_gives_it_then_an_installed_one_for_as_long_as_it_is_there():
    shelf = Shelf(engine_of(dense_card()), engine_of(card(ModelKind.SPARSE, name="terms")))
    offer = shelf.offer("tiny")
    assert [await offer.name_giving(Output.SPARSE) for _ in range(2)] == ["terms", "terms"]
    await shelf.engines.pop("terms").aclose()
    with pytest.raises(WrongModelKind):
        await offer.name_giving(Output.SPARSE)
    await shelf.engines["tiny"].aclose()


async def test_remembered_when_asked_again_at_once_then_the_check_is_not_repeated():
    clock, answers = FakeClock(), [True, False]

    async def check() -> bool:
        return answers.pop(0)

    ready = Remembered(check, clock)
    assert [await ready(), await ready()] == [True, True]
    clock.advance(1.5)
    assert await ready() is False


def test_headers_when_made_then_whole_milliseconds():
    spent = Spent.now(5)
    spent.add(InferenceTiming(tokenize_ms=1.9, queue_ms=2.0, inference_ms=30.5), 4)
    spent.add(InferenceTiming(tokenize_ms=1.0, queue_ms=3.0, inference_ms=10.0), 6)
    out = spent.out()
    assert (out.compute_chars, out.compute_tokens) == (5, 10)
    assert (out.tokenization_time_ns, out.queue_time_ns, out.inference_time_ns) == (2_900_000, 3_000_000, 30_500_000)
    headers = dict(headers_of(out, "gpu"))
    assert headers["x-compute-type"] == "gpu"
    assert (headers["x-tokenization-time"], headers["x-queue-time"], headers["x-inference-time"]) == ("2", "3", "30")


def test_spent_when_counts_exceed_the_wire_then_the_most_that_it_can_say():
    spent = Spent.now(1 << 40)
    assert spent.out().compute_chars == (1 << 32) - 1
