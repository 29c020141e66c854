"""Text -> BM25 sparse vectors, the same for a query of three words as for the document that answers it.

The engine multiplies query and passage weights with the inverse document frequency, so a passage carries the saturated
term frequency of BM25 (Robertson and Zaragoza, 2009, section 3.4) and a query weights its terms by 1.

The language of a passage is given or told by its script and, in Latin script, its function words. That fails on three
words; so a query whose language is not given carries, for each word, the distinct stems of all languages: whichever
the passage chose is among them, and the others are no words of it.
"""

import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.embedder.bm25 import segment
from services.embedder.bm25.han import HanWords
from services.embedder.bm25.languages import LATIN_STEMMERS, latin_language, normal_code
from services.embedder.bm25.words import WordAnalyser

#: Stored with an index; vectors of different versions do not meet.
TOKENIZER_VERSION: Final = "bm25-1"
_CACHE_WORDS: Final = 200_000
_ALL_LATIN: Final = tuple(LATIN_STEMMERS)


class Side(Enum):
    QUERY = "QUERY"
    PASSAGE = "PASSAGE"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseVector:
    """`indices` ascending and distinct (uint32), `values` (float32) beside them; `length` in terms, repeats counted."""

    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    length: int


class Bm25Encoder:
    """Analyses texts. Keeps what it learnt about words in a bounded cache; one instance serves a process."""

    def __init__(self) -> None:
        self._words = WordAnalyser()
        self._han = HanWords()
        self._tables: dict[tuple[str, ...], _TermTable] = {}

    def analyse(self, text: str, *, language: str = "", side: Side = Side.PASSAGE) -> Sequence[str]:
        """The terms of `text`, repeats side by side. `language` is a code or tag (`pt`, `pt-BR`), or empty."""
        return [term for term, count in self._frequencies(text, language, side).items() for _ in range(count)]

    def passage_vector(
        self, text: str, *, average_length: float, language: str = "", k1: float = 1.2, b: float = 0.75
    ) -> SparseVector:
        """Saturated term frequencies: tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average_length)).

        `average_length` is that of the passages of the collection, in terms; above 0, else ValueError.
        """
        if not average_length > 0:
            raise ValueError(f"average_length is {average_length}; it must be above 0")
        indices, tf = _hashed(self._frequencies(text, language, Side.PASSAGE))
        length = int(tf.sum())
        values = tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average_length))
        return SparseVector(indices=indices, values=values.astype(np.float32), length=length)

    def query_vector(self, text: str, *, language: str = "") -> SparseVector:
        """How often each term occurs; a text without words has an empty vector, which matches nothing."""
        indices, tf = _hashed(self._frequencies(text, language, Side.QUERY))
        return SparseVector(indices=indices, values=tf.astype(np.float32), length=int(tf.sum()))

    def _frequencies(self, text: str, language: str, side: Side) -> dict[str, int]:
        runs: list[str] = []
        if not text.isascii():
            runs, text = segment.runs_of(unicodedata.normalize("NFKC", text))
        counts = Counter(segment.words_of(text))
        table = self._table(_languages(language, side, counts))
        frequencies: dict[str, int] = {}
        for word, count in counts.items():
            for term in table[word]:
                frequencies[term] = frequencies.get(term, 0) + count
        for term in self._run_terms(runs):
            frequencies[term] = frequencies.get(term, 0) + 1
        return frequencies

    def _run_terms(self, runs: list[str]) -> Iterable[str]:
        """Pairs everywhere; for Chinese also characters (nDCG@10 +0.02 on legal questions) and dictionary words."""
        if not runs:
            return ()
        stretches = segment.han_of(runs)
        if not stretches:
            return chain.from_iterable(map(segment.run_terms, runs))
        runs = self._han.fold("\n".join(runs)).split("\n")
        stretches = segment.han_of(runs)
        pairs = chain.from_iterable(map(segment.run_terms, runs))
        return chain(pairs, "".join(stretches), self._han.words(stretches))

    def _table(self, languages: tuple[str, ...]) -> "_TermTable":
        table = self._tables.get(languages)
        if table is None:
            table = self._tables[languages] = _TermTable(self._words, languages)
        return table


class _TermTable(dict[str, tuple[str, ...]]):
    """Word as it stands in a text -> its terms; emptied when it is full, as a cache that counts use costs more."""

    def __init__(self, words: WordAnalyser, languages: tuple[str, ...]) -> None:
        super().__init__()
        self._words = words
        self._languages = languages

    def __missing__(self, word: str) -> tuple[str, ...]:
        if len(self) >= _CACHE_WORDS:
            self.clear()
        terms = self._words.terms(word, self._languages)
        self[word] = terms
        return terms


def _languages(language: str, side: Side, counts: Mapping[str, int]) -> tuple[str, ...]:
    code = normal_code(language)
    if code in LATIN_STEMMERS:
        return (code,)
    # A known language without a stemmer of ours, such as zh or ru, says nothing about Latin words beside it.
    return _ALL_LATIN if side is Side.QUERY else (latin_language(counts),)


def _hashed(frequencies: Mapping[str, int]) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    """Term ids, ascending and distinct, and how often each occurs. The id is the term's CRC-32, which never changes."""
    ids = np.fromiter((zlib.crc32(term.encode()) for term in frequencies), np.uint32, len(frequencies))
    tf = np.fromiter(frequencies.values(), np.float64, len(frequencies))
    unique, inverse = np.unique(ids, return_inverse=True)
    if len(unique) < len(ids):
        return unique, np.bincount(inverse, weights=tf, minlength=len(unique)).astype(np.float64)
    return unique, tf[np.argsort(ids)]
