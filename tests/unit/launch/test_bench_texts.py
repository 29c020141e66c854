"""Texts of measurements: the same for the same seed, of the length asked for, and none like another in one run."""

import random
from itertools import islice

import pytest
from pergamon.client import AsyncClient

from services.launch.bench_calls import Mix, embed_calls
from services.launch.bench_texts import Span, text_of, texts_of


def test_texts_when_seeds_are_equal_then_equal_and_otherwise_not() -> None:
    words = Span(least=20, most=300)
    assert texts_of(1, 5, words) == texts_of(1, 5, words)
    assert texts_of(1, 5, words) != texts_of(2, 5, words)


def test_text_when_words_are_given_then_has_so_many_and_ends_a_sentence() -> None:
    for words in (1, 2, 4, 26, 150):
        text = text_of(random.Random(words), words)
        assert len(text.split()) == words
        assert text.endswith(".")
        assert text[0].isupper()


@pytest.mark.parametrize(("text", "span"), [("32", (32, 32)), ("20-300", (20, 300)), ("1-1", (1, 1))])
def test_span_when_a_number_or_two_then_parsed(text: str, span: tuple[int, int]) -> None:
    assert (Span.parse(text).least, Span.parse(text).most) == span


@pytest.mark.parametrize("text", ["", "0", "5-4", "a", "3-", "-3", "1-2-3"])
def test_span_when_neither_then_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Span.parse(text)


async def test_calls_when_the_drawn_texts_are_used_again_then_lanes_are_mixed_as_asked() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        mix = Mix(texts=Span(least=1, most=3), words=Span(least=2, most=4), bulk_share=0.25)
        drawn = list(islice(embed_calls(client, mix, model="", sparse=False, timeout_s=1), 400))
    shares = [ticket.label for ticket in drawn].count("bulk") / len(drawn)
    assert 0.18 < shares < 0.32
    assert {ticket.texts for ticket in drawn} == {1, 2, 3}
