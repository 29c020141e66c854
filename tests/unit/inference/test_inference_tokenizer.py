"""Truncation by policy, per text; pairs are cut on the passage side only."""

import numpy as np
import pytest

from services.inference.errors import EmptyInput, InputTooLong
from services.inference.tokenizer import CHARS_PER_TOKEN_MAX, TextTokenizer
from services.inference.types import Encoded, Truncation
from tests.helpers.inference import word_tokenizer

LIMIT = 8
CLS, SEP = 2, 3


def ids(*words: int) -> list[int]:
    return [4 + w for w in words]


def text(*words: int) -> str:
    return " ".join(f"w{w}" for w in words)


@pytest.fixture
def tokenizer() -> TextTokenizer:
    return TextTokenizer(word_tokenizer(), max_tokens=LIMIT)


def test_encode_when_texts_fit_then_nothing_is_cut(tokenizer: TextTokenizer):
    (short, full) = tokenizer.encode([text(1), text(*range(6))])
    assert isinstance(short, Encoded)
    assert isinstance(full, Encoded)
    assert short.ids.tolist() == [CLS, *ids(1), SEP]
    assert (full.token_count, full.truncated) == (LIMIT, False)


def test_encode_when_one_text_is_a_token_too_long_then_it_alone_fails(tokenizer: TextTokenizer):
    good, bad = tokenizer.encode([text(1), text(*range(7))])
    assert isinstance(good, Encoded)
    assert isinstance(bad, InputTooLong)
    assert bad.metadata == {"max_tokens": "8", "token_count": "9"}


@pytest.mark.parametrize(
    ("truncation", "kept"), [(Truncation.RIGHT, (0, 1, 2, 3, 4, 5)), (Truncation.LEFT, (3, 4, 5, 6, 7, 8))]
)
def test_encode_when_asked_to_cut_then_keeps_the_other_end(
    tokenizer: TextTokenizer, truncation: Truncation, kept: tuple[int, ...]
):
    (cut,) = tokenizer.encode([text(*range(9))], truncation=truncation)
    assert isinstance(cut, Encoded)
    assert cut.ids.tolist() == [CLS, *ids(*kept), SEP]
    assert cut.truncated


@pytest.mark.parametrize(("truncation", "kept"), [(Truncation.RIGHT, (0, 1, 2)), (Truncation.LEFT, (6, 7, 8))])
def test_encode_when_there_is_a_prefix_then_it_survives_cutting_at_either_end(
    tokenizer: TextTokenizer, truncation: Truncation, kept: tuple[int, ...]
):
    (cut,) = tokenizer.encode([text(*range(9))], prefix="w70 w71 w72 ", truncation=truncation)
    assert isinstance(cut, Encoded)
    assert cut.ids.tolist() == [CLS, *ids(70, 71, 72), *ids(*kept), SEP]


@pytest.mark.parametrize("blank", ["", " ", "\n\t \u3000"])
def test_encode_when_a_text_is_blank_then_it_alone_is_an_empty_input(tokenizer: TextTokenizer, blank: str):
    bad, good = tokenizer.encode([blank, text(1)], prefix="w1 ", truncation=Truncation.RIGHT)
    assert isinstance(bad, EmptyInput)
    assert isinstance(good, Encoded)


def test_encode_when_a_text_is_huge_then_it_is_capped_before_tokenising(tokenizer: TextTokenizer):
    huge = "x" * (LIMIT * CHARS_PER_TOKEN_MAX + 1)  # one unknown token: only the cap tells that it is too long
    (failed,) = tokenizer.encode([huge])
    (cut,) = tokenizer.encode([huge], truncation=Truncation.RIGHT)
    assert isinstance(failed, InputTooLong)
    assert "token_count" not in failed.metadata
    assert isinstance(cut, Encoded)
    assert cut.truncated


def test_encode_pairs_when_they_fit_then_types_tell_the_halves_apart(tokenizer: TextTokenizer):
    (pair,) = tokenizer.encode_pairs(text(1, 2), [text(3)])
    assert isinstance(pair, Encoded)
    assert pair.ids.tolist() == [CLS, *ids(1, 2), SEP, *ids(3), SEP]
    assert pair.type_ids.tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(("truncation", "kept"), [(Truncation.RIGHT, (10, 11, 12)), (Truncation.LEFT, (13, 14, 15))])
def test_encode_pairs_when_too_long_then_only_the_passage_is_cut(
    tokenizer: TextTokenizer, truncation: Truncation, kept: tuple[int, ...]
):
    (pair,) = tokenizer.encode_pairs(text(1, 2), [text(*range(10, 16))], truncation=truncation)
    assert isinstance(pair, Encoded)
    assert pair.ids.tolist() == [CLS, *ids(1, 2), SEP, *ids(*kept), SEP]
    assert pair.truncated


def test_encode_pairs_when_truncation_is_off_then_long_and_blank_passages_fail_alone(tokenizer: TextTokenizer):
    long, blank, good = tokenizer.encode_pairs(text(1, 2), [text(*range(4)), " ", text(3)])
    assert isinstance(long, InputTooLong)
    assert long.metadata["token_count"] == "9"
    assert isinstance(blank, EmptyInput)
    assert isinstance(good, Encoded)


def test_encode_pairs_when_the_query_leaves_no_room_then_every_pair_fails(tokenizer: TextTokenizer):
    pairs = tokenizer.encode_pairs(text(*range(5)), [text(1), text(2)], truncation=Truncation.RIGHT)
    assert all(isinstance(pair, InputTooLong) for pair in pairs)


def test_encode_pairs_when_the_query_is_blank_then_every_pair_is_an_empty_input(tokenizer: TextTokenizer):
    assert all(isinstance(pair, EmptyInput) for pair in tokenizer.encode_pairs(" ", [text(1)]))


def test_token_ids_when_a_text_exceeds_the_limit_then_counts_all_of_it(tokenizer: TextTokenizer):
    found = tokenizer.token_ids([text(*range(20)), ""], prefix="w1 ")
    assert [len(one) for one in found] == [23, 3]


def test_tokenizer_when_the_file_bakes_limits_in_then_they_are_ignored():
    baked = word_tokenizer()
    baked.enable_truncation(4)
    baked.enable_padding(length=6)
    (one,) = TextTokenizer(baked, max_tokens=LIMIT).encode([text(*range(5))])
    assert isinstance(one, Encoded)
    assert np.array_equal(one.ids, [CLS, *ids(*range(5)), SEP])
