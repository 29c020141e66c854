import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.index.words import MAX_WORD_CHARS, MAX_WORDS, asked_words, stored_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Annual_Report-2024.PDF", ["annual", "report", "2024", "pdf"]),
        ("Straße STRASSE", ["strasse"]),
        ("\ufb01le \uff21\uff22", ["file", "ab"]),
        ("中文检索 v2", ["中文", "文检", "检索", "v2"]),
        ("年", ["年"]),
        ("  ...  ", []),
        ("", []),
    ],
)
def test_asked_words_when_text_is_odd_then_folded_and_cut(text: str, words: list[str]) -> None:
    assert asked_words(text) == words


@given(st.text(max_size=60))
def test_words_when_the_same_text_is_asked_then_all_of_it_is_stored(text: str) -> None:
    assert set(asked_words(text)) <= set(stored_words(text))


@given(st.text(alphabet="ab 中文é", max_size=20), st.text(alphabet="ab 中文é", max_size=20))
def test_words_when_a_part_is_asked_then_it_is_found_in_the_whole(left: str, right: str) -> None:
    assert set(asked_words(right)) <= set(stored_words(f"{left} {right}"))


def test_stored_words_when_the_text_is_huge_then_bounded() -> None:
    words = stored_words(" ".join(f"w{i}" for i in range(2_000)) + "x" * 5_000)
    assert len(words) == MAX_WORDS
    assert len(stored_words("x" * 5_000)[0]) == MAX_WORD_CHARS
