"""Truncation by policy, per text; pairs are cut on the passage side only."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from services.inference import tokenizer as tokenizer_module
from services.inference.errors import EmptyInput, InputTooLong
from services.inference.tokenizer import CHARS_PER_TOKEN_MAX, TextTokenizer, in_groups
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


@given(st.lists(st.text(max_size=12), max_size=20))
def test_in_groups_when_texts_are_many_then_none_is_lost_and_groups_are_small(texts: list[str]):
    groups = list(in_groups(texts, chars=16))
    assert [text for group in groups for text in group] == texts
    assert all(group for group in groups)
    assert all(len(group) == 1 or sum(map(len, group)) <= 16 for group in groups)


def test_encode_when_texts_fill_several_groups_then_each_is_encoded_as_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokenizer_module, "_GROUP_CHARS", 16)
    tokenizer = TextTokenizer(word_tokenizer(), max_tokens=8)
    texts = [f"w{number} " * (number % 9 + 1) for number in range(30)]
    for encode in (partial(tokenizer.encode, truncation=Truncation.LEFT), partial(tokenizer.encode_pairs, "w1")):
        for one, alone in zip(encode(texts), texts, strict=True):
            (same,) = encode([alone])
            assert type(one) is type(same)
            assert not isinstance(one, Encoded) or one.ids.tolist() == same.ids.tolist()
    assert tokenizer.token_ids(texts) == [tokenizer.token_ids([alone])[0] for alone in texts]


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


def byte_tokenizer() -> Tokenizer:
    """One token a byte, so that most characters have several; no special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizer


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("query", [text(1, 2), f"  {text(1)}\n", "w1" + " " * (LIMIT * CHARS_PER_TOKEN_MAX - 2)])
def test_fit_query_when_it_takes_no_more_than_half_then_it_stays_as_it_is(
    tokenizer: TextTokenizer, query: str, cut: bool
):
    assert tokenizer.max_query_tokens == 2
    assert tokenizer.fit_query(query, cut=cut) == (query, False)


def test_fit_query_when_it_is_longer_than_half_then_its_end_is_cut_off(tokenizer: TextTokenizer):
    assert tokenizer.fit_query(f" {text(*range(7))}", cut=True) == (text(0, 1), True)
    assert tokenizer.fit_query(text(*range(3)), cut=True) == (text(0, 1), True)


def test_fit_query_when_it_may_not_be_cut_then_says_how_long_it_is_and_may_be(tokenizer: TextTokenizer):
    with pytest.raises(InputTooLong, match="has 3 tokens; it may have 2") as caught:
        tokenizer.fit_query(text(1, 2, 3), cut=False)
    assert caught.value.metadata == {"max_tokens": "2", "token_count": "3"}


def test_fit_query_when_it_is_huge_then_it_is_capped_before_tokenising(tokenizer: TextTokenizer):
    huge = "x" * 100_000  # one unknown token
    with pytest.raises(InputTooLong, match="100000 characters") as caught:
        tokenizer.fit_query(huge, cut=False)
    assert "token_count" not in caught.value.metadata
    assert tokenizer.fit_query(huge, cut=True) == ("x" * 2 * CHARS_PER_TOKEN_MAX, True)


def test_fit_query_when_white_space_surrounds_it_for_long_then_the_words_remain(tokenizer: TextTokenizer):
    spaces = " " * 100_000
    assert tokenizer.fit_query(f"{spaces}w1{spaces}", cut=False) == ("w1", False)


def test_fit_query_when_the_limit_falls_into_a_character_then_the_whole_character_goes():
    tokenizer = TextTokenizer(byte_tokenizer(), max_tokens=12)
    assert tokenizer.fit_query("a\N{GRINNING FACE}\N{GRINNING FACE}", cut=True) == ("a\N{GRINNING FACE}", True)


@given(query=st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.strip))
def test_fit_query_when_it_is_any_text_then_a_beginning_with_the_same_tokens_in_half(query: str):
    library = byte_tokenizer()
    tokenizer = TextTokenizer(library, max_tokens=20)
    fitted, was_cut = tokenizer.fit_query(query, cut=True)
    before = library.encode(query.strip()).ids
    after = library.encode(fitted).ids if was_cut else before
    assert was_cut or fitted == query
    assert len(after) <= tokenizer.max_query_tokens
    assert after == before[: len(after)]
    assert was_cut == (len(before) > tokenizer.max_query_tokens)
    assert len(after) > tokenizer.max_query_tokens - 4 or not was_cut


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
