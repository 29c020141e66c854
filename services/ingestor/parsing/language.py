# pyright: reportMissingTypeStubs=false
"""The language of a text, from a sample of it."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingua import LanguageDetector

#: The languages the product claims; a wider set would make short samples less certain and the models larger.
_LANGUAGES = [
    "ARABIC",
    "BULGARIAN",
    "CHINESE",
    "CZECH",
    "DANISH",
    "DUTCH",
    "ENGLISH",
    "FINNISH",
    "FRENCH",
    "GERMAN",
    "GREEK",
    "HEBREW",
    "HINDI",
    "HUNGARIAN",
    "INDONESIAN",
    "ITALIAN",
    "JAPANESE",
    "KOREAN",
    "BOKMAL",
    "PERSIAN",
    "POLISH",
    "PORTUGUESE",
    "ROMANIAN",
    "RUSSIAN",
    "SPANISH",
    "SWEDISH",
    "THAI",
    "TURKISH",
    "UKRAINIAN",
    "VIETNAMESE",
]
_MIN_LETTERS = 16
_SAMPLE_CHARS = 1500
_NOISE = re.compile(r"https?://\S+|\S+@\S+|[\d_|*#<>{}\[\]()=/\\+-]+")


def detect_language(text: str) -> str:
    """ISO 639-1 code of the language of `text`; empty when there is too little of it, or it could be several."""
    sample = " ".join(_NOISE.sub(" ", text[: 4 * _SAMPLE_CHARS]).split())[:_SAMPLE_CHARS]
    if sum(letter.isalpha() for letter in sample) < _MIN_LETTERS:
        return ""
    found = _detector().detect_language_of(sample)
    return found.iso_code_639_1.name.lower() if found is not None else ""


@cache
def _detector() -> LanguageDetector:
    """In low accuracy mode, which loads the smallest models: our samples are long enough for them."""
    from lingua import Language, LanguageDetectorBuilder

    languages = [getattr(Language, name) for name in _LANGUAGES]
    return LanguageDetectorBuilder.from_languages(*languages).with_low_accuracy_mode().build()
