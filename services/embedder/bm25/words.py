# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Turns one word of a text into its terms: parts, whole, stem, without case and accents."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

import Stemmer

from services.embedder.bm25.languages import DEFAULT_LATIN, FUNCTION_WORDS, KEEPS_MARKS, LATIN_STEMMERS, SCRIPT_STEMMERS

_SEPARATOR: Final = re.compile(r"[-._‐‑]+")
_MIN_PIECE = 2
_MAX_PARTS_OF_WHOLE = 6
_MAX_TERM_CHARS = 64
# Letters that decomposition leaves whole, and joiners that carry no meaning.
_PLAIN: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ـ": "", "\u200c": "",
     "\u200d": "", "ё": "е"}
)  # fmt: skip
# Marks that spell a vowel of their own in Indic scripts are letters; these ranges are accents.
_ACCENT: Final = re.compile("[\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed]")
_TURKISH_CAPITALS: Final = str.maketrans({"I": "ı", "İ": "i"})


class WordAnalyser:
    """Splits and stems words. Not a pure function only because a stemmer is an object that is worth keeping."""

    def __init__(self) -> None:
        self._stemmers: dict[str, Stemmer.Stemmer] = {}

    def terms(self, word: str, languages: tuple[str, ...]) -> tuple[str, ...]:
        """The terms of `word`, as analysed in each of `languages`; repeats only where the word repeats a part.

        `languages` are codes; those that are not written in the word's script have no effect on it.
        """
        parts = _SEPARATOR.split(word.strip("-._‐‑"))
        found: list[str] = []
        if len(parts) > 1:
            for part in parts:
                found.extend(self._simple(part, languages))
            found.extend(self._whole(parts, languages))
        else:
            found.extend(self._simple(parts[0], languages))
        return tuple(term[:_MAX_TERM_CHARS] for term in found if term)

    def _simple(self, word: str, languages: tuple[str, ...]) -> Iterator[str]:
        yield from self._stems(word, languages)
        pieces = _pieces(word)
        if len(pieces) > 1:
            for piece in pieces:
                if len(piece) >= _MIN_PIECE:
                    yield from self._stems(piece, languages)

    def _whole(self, parts: list[str], languages: tuple[str, ...]) -> Iterator[str]:
        filled = [part for part in parts if part]
        if not 1 < len(filled) <= _MAX_PARTS_OF_WHOLE:
            return
        if all(part.isdecimal() for part in filled):
            # A version or a decimal is not the number that its digits make; `3.11.7` is also found as `3.11`.
            for count in range(2, len(filled) + 1):
                yield ".".join(filled[:count])
        else:
            yield from self._stems("".join(filled), languages)

    def _stems(self, word: str, languages: tuple[str, ...]) -> Iterator[str]:
        lower = word.casefold()
        if not lower:
            return
        if lower.isdecimal():
            digits = lower if lower.isascii() else "".join(str(unicodedata.decimal(digit)) for digit in lower)
            yield digits.lstrip("0") or "0"
            return
        script = _script_stemmer(lower)
        if script is not None:
            yield _plain(self._stem(script, lower))
            return
        if lower in FUNCTION_WORDS or not lower.isalpha():
            yield _plain(lower)
            return
        for language in languages:
            form = word.translate(_TURKISH_CAPITALS).casefold() if language == "tr" else lower
            stem = self._stem(LATIN_STEMMERS[language], form)
            stem = stem if language in KEEPS_MARKS else _plain(stem)
            yield stem if language == DEFAULT_LATIN else f"{language}:{stem}"

    def _stem(self, name: str, word: str) -> str:
        if not name:
            return word
        stemmer = self._stemmers.get(name)
        if stemmer is None:
            # Results are kept by the caller; the stemmer's own cache would hold them twice.
            stemmer = self._stemmers[name] = Stemmer.Stemmer(name, 0)
        return str(stemmer.stemWord(word))


def _script_stemmer(word: str) -> str | None:
    """The stemmer that the word's script decides, None for Latin letters."""
    first = word[0]
    if first < "\u0370":
        return None
    for low, high, name in SCRIPT_STEMMERS:
        if low <= first <= high:
            return name
    return None if first.isascii() or "\u1e00" <= first <= "\u1eff" else ""


def _plain(word: str) -> str:
    if word.isascii():
        return word
    decomposed = _ACCENT.sub("", unicodedata.normalize("NFD", word))
    return unicodedata.normalize("NFC", decomposed).translate(_PLAIN)


def _pieces(word: str) -> list[str]:
    """`parseHTTPHeader` -> parse HTTP Header, `RTX4090` -> RTX 4090; a plain word is one piece."""
    if word.isalpha() and (word.islower() or word.isupper() or word.istitle()):
        return [word]
    if word[:-1].isupper() and word[-1] == "s":
        return [word]
    return _PIECE.findall(word)


_PIECE: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|\d+|[^\WA-Z\d_]+")
