"""Cuts a text into words, identifiers and runs of scripts that are written without spaces."""

import re
from collections.abc import Iterator
from typing import Final

# Han, kana, Hangul, and the marks that stand inside Japanese words.
_CJK: Final = (
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
# Thai and Lao, Myanmar, Khmer: no spaces between words, marks above and below.
_UNSPACED: Final = "\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u108f\u1780-\u17d3"
# Signs that belong to a word although `\\w` leaves them out: Hebrew, Arabic and Indic vowels, combining accents.
_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0963\u0966-\u0dff\u200c\u200d"
)

_ASCII_WORD: Final = re.compile(r"\w+(?:[-.]\w+)*(?:\+\+|#(?!\w))?", re.ASCII)
_WORD: Final = re.compile(rf"[\w{_MARKS}]+(?:[-.‐‑][\w{_MARKS}]+)*(?:\+\+|#(?!\w))?")
_RUN: Final = re.compile(f"[{_CJK}]+|[{_UNSPACED}]+")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
_GROUPED_NUMBER: Final = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
# A consonant with its marks: the unit that a reader of these scripts takes for a letter.
_CLUSTER: Final = re.compile(
    "[\u0e40-\u0e44]?[\u0e01-\u0e2e][\u0e30-\u0e3a\u0e45-\u0e4e]*|[\u0e81-\u1fff][\u0eb0-\u0ebc\u0ec8-\u0ece"
    "\u102b-\u103e\u1056-\u1059\u17b4-\u17d3]*|."
)


def words_of(text: str) -> list[str]:
    """Words and identifiers of a text, as they stand in it; `text` is NFKC and holds no unspaced runs (see `runs_of`).

    Parts joined by a hyphen, a dot or an underscore are one word here (`RTX-4090`, `GOALS.md`, `3.11.7`).
    Commas that group digits are gone.
    """
    if "," in text:
        text = _GROUPED_NUMBER.sub(_without_commas, text)
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text)


def runs_of(text: str) -> tuple[list[str], str]:
    """The runs of a text that are written without spaces, and the text without them."""
    runs: list[str] = _RUN.findall(text)
    return runs, _RUN.sub(" ", text) if runs else text


def han_of(runs: list[str]) -> list[str]:
    """The stretches of Chinese characters inside `runs`."""
    return [han for run in runs for han in _HAN.findall(run)]


def run_terms(run: str) -> Iterator[str]:
    """Overlapping pairs of the characters of a run (clusters, and triples too, for Thai and its neighbours).

    A run of one character that is not Chinese is its own term; Chinese ones count singly anyway, see the encoder.
    """
    if "\u0e00" <= run[0] < "\u1800":
        clusters = _CLUSTER.findall(run)
        yield from _grams(clusters, 2)
        if len(clusters) > 2:
            yield from _grams(clusters, 3)
    elif len(run) == 1:
        if not _HAN.match(run):
            yield run
    else:
        yield from map(str.__add__, run, run[1:])


def _grams(units: list[str], size: int) -> Iterator[str]:
    if len(units) < size:
        yield "".join(units)
    for start in range(len(units) - size + 1):
        yield "".join(units[start : start + size])


def _without_commas(match: re.Match[str]) -> str:
    return match[0].replace(",", "")
