"""The language of a query, told only where it is plain."""

import asyncio
import re
import threading

from lingua import IsoCode639_1, LanguageDetector, LanguageDetectorBuilder

#: Languages worth telling apart; each costs memory (38 MB for all of these, 365 MB with the large models).
_CODES = ("en", "de", "fr", "es", "it", "pt", "nl", "sv", "pl", "tr", "vi", "zh", "ja", "ko", "ru", "ar")
#: Below this the detector is guessing.
_CERTAIN = 0.9
_MAX_CHARS = 512
#: Words of English alone. The small models take one in twelve short English queries for something else with
#: certainty; with these 23 of 1,401 are left, and 16 of 17 short queries in other languages are still told.
_ENGLISH_WORDS = (
    "the and of to for is with that this have from which you what when how who why where does should can there their "
    "are if it be by not without using between into my your"
)
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_WORDS = re.compile("[a-z]+")


class LinguaDetector:
    """Loads its models at the first question (0.4 s), in a thread and without stopping the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._detector: LanguageDetector | None = None

    async def detect(self, text: str) -> str:
        """ISO 639-1 code; empty when it is not certain, which many queries of one or two words are."""
        return await asyncio.to_thread(self._detect, text[:_MAX_CHARS])

    def _detect(self, text: str) -> str:
        best = next(iter(self._loaded().compute_language_confidence_values(text)), None)
        if best is None or best.value < _CERTAIN:
            return ""
        if not _ENGLISH.isdisjoint(_WORDS.findall(text.lower())):
            return "en"
        return best.language.iso_code_639_1.name.lower()

    def _loaded(self) -> LanguageDetector:
        with self._lock:
            if self._detector is None:
                codes = [IsoCode639_1.from_str(code.upper()) for code in _CODES]
                self._detector = (
                    LanguageDetectorBuilder.from_iso_codes_639_1(*codes)
                    .with_low_accuracy_mode()
                    .with_preloaded_language_models()
                    .build()
                )
            return self._detector
