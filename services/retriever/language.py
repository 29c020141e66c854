"""The language of a query, told only where it is plain."""

import asyncio
import threading

from lingua import IsoCode639_1, LanguageDetector, LanguageDetectorBuilder

#: Languages worth telling apart; each costs memory (38 MB for all of these).
_CODES = ("en", "de", "fr", "es", "it", "pt", "nl", "sv", "pl", "tr", "vi", "zh", "ja", "ko", "ru", "ar")
#: On queries of a few words the detector is sure of much; below this it is guessing.
_CERTAIN = 0.95
_MAX_CHARS = 512


class LinguaDetector:
    """Loads its models at the first question (0.4 s), in a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._detector: LanguageDetector | None = None

    async def detect(self, text: str) -> str:
        """ISO 639-1 code; empty when it is not certain, which most queries of one or two words are."""
        return await asyncio.to_thread(self._detect, text[:_MAX_CHARS])

    def _detect(self, text: str) -> str:
        best = next(iter(self._loaded().compute_language_confidence_values(text)), None)
        if best is None or best.value < _CERTAIN:
            return ""
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
