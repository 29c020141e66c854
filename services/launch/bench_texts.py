"""Texts for measurements: words of everyday English with natural frequencies, the same for the same seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

#: Common words and less common ones, so that a word has about 1.3 tokens, as prose has.
_VOCABULARY = """
the of and to a in is that it for was on with as be by at this from or have an they which one you were all her there
would their we him been has when who will no more if out so up said what its about than into them can only other time
new some could these two may first then do any like my now over such our man me even most made after also did many off
before must well back through years much where your way down should because long each just state those people too mr
how little good world make very year still see work great being life both between under never day same another know
while last might us old place against here right found number part head three course himself fact since water until
house always far system give something why few use general public night school around however find thing want home
required amount payment approved department request period policy customer contract machine pressure temperature
warranty maintenance installation regulation employee reimbursement certificate configuration parameter measurement
laboratory distribution insurance manufacturer replacement calibration throughput equipment procurement supervisor
quarterly accounting depreciation shareholder obligation jurisdiction arbitration confidentiality termination
hydraulic compressor bearing lubricant voltage transformer semiconductor algorithm protocol latency encryption
photosynthesis chromosome antibody enzyme membrane catalyst polymer isotope sediment glacier monsoon archipelago
parliament constitution referendum treaty sovereignty dynasty cathedral manuscript philosophy metaphysics
"""
_WORDS = _VOCABULARY.split()
_WEIGHTS = tuple(accumulate(1.0 / (rank + 8.0) for rank in range(len(_WORDS))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From `least` to `most`, both included; drawn evenly."""

    least: int
    most: int

    def draw(self, rng: random.Random) -> int:
        return rng.randint(self.least, self.most)

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"

    @classmethod
    def parse(cls, text: str) -> "Span":
        """`32` or `20-300`. Raises ValueError for anything else, and for a span below 1 or upside down."""
        low, dash, high = text.partition("-")
        span = cls(least=int(low), most=int(high if dash else low))
        if not 1 <= span.least <= span.most:
            raise ValueError(f"{text!r} is not a number above 0, nor a span as 20-300")
        return span


def text_of(rng: random.Random, words: int) -> str:
    """Sentences of 5 to 25 words, `words` in all."""
    drawn = rng.choices(_WORDS, cum_weights=_WEIGHTS, k=words)
    start = 0
    while start < words:
        end = min(words, start + rng.randint(5, 25))
        drawn[start] = drawn[start].capitalize()
        drawn[end - 1] += "."
        start = end
    return " ".join(drawn)


def texts_of(seed: int, count: int, words: Span) -> list[str]:
    rng = random.Random(seed)  # noqa: S311 - for measurements, guards nothing
    return [text_of(rng, words.draw(rng)) for _ in range(count)]


def batches_of(rng: random.Random, texts: Span, words: Span) -> Iterator[list[str]]:
    """The texts of one call after another, without end."""
    while True:
        yield [text_of(rng, words.draw(rng)) for _ in range(texts.draw(rng))]
