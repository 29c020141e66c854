"""Telling the language of a query: certain or silent."""

import pytest

from services.retriever.language import LinguaDetector


@pytest.fixture(scope="module")
def detector() -> LinguaDetector:
    return LinguaDetector()


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("wie hoch ist die maximale Temperatur des Ofens", "de"),
        ("in welchem Jahr wurde die Firma gegründet", "de"),
        ("comment réinitialiser le mot de passe", "fr"),
        ("差旅费由谁支付", "zh"),
        ("出張費は誰が払いますか", "ja"),
        ("кто оплачивает поездку", "ru"),
    ],
)
async def test_detect_when_the_query_is_not_english_then_its_language(detector: LinguaDetector, query, language):
    assert await detector.detect(query) == language


@pytest.mark.parametrize(
    "query",
    [
        "who pays for travel?",
        "how do I reset the password",
        "auto crop particular object from image in python",
        "connect to python ftp server host",
    ],
)
async def test_detect_when_the_query_is_english_then_it_is_taken_for_nothing_else(detector: LinguaDetector, query):
    assert await detector.detect(query) in ("", "en")


@pytest.mark.parametrize("query", ["nda", "error 0x80070005", "???", "ISO 9001"])
async def test_detect_when_the_query_tells_nothing_then_silent(detector: LinguaDetector, query):
    assert await detector.detect(query) == ""
