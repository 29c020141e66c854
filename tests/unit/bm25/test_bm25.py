"""The analysis meets itself: what a query says is found in the passage that says it, in every language."""

import numpy as np
import pytest

from services.embedder.bm25 import Bm25Encoder, Side


@pytest.fixture(scope="module")
def encoder():
    return Bm25Encoder()


def common(encoder, query, passage, language=""):
    asked = encoder.query_vector(query, language=language)
    held = encoder.passage_vector(passage, average_length=10, language=language)
    return len(np.intersect1d(asked.indices, held.indices))


@pytest.mark.parametrize(
    ("query", "passage"),
    [
        ("parse http header", "def parse_http_header(raw):"),
        ("parseHTTPHeader", "def parse_http_header(raw):"),
        ("goals.md", "see docs/GOALS.md for more"),
        ("RTX4090", "the RTX-4090 card"),
        ("rtx 4090", "the RTX-4090 card"),
        ("3.11", "needs Python 3.11.7"),
        ("1234567", "a total of 1,234,567 dollars"),
        ("c++", "written in C++ mostly"),
        ("cafe", "a café at the corner"),
        ("Ｗｉｄｔｈ", "the width"),
        ("漢語", "学习汉语的人"),
        ("汉", "漢朝"),
        ("東京", "私は東京都に住んでいます"),
        ("한국어", "저는 한국어를 배웁니다"),
        ("ภาษาไทย", "เขาเรียนภาษาไทยทุกวัน"),
        ("книги", "много книг на полке"),
        ("ё", "Е"),
        ("كتاب", "الكتاب على الطاولة"),
        ("लड़का", "एक लड़का खेल रहा है"),
        ("άνθρωπος", "ΑΝΘΡΩΠΟΣ"),
    ],
)
def test_query_when_written_otherwise_then_meets_its_passage(encoder, query, passage):
    assert common(encoder, query, passage) >= 1


@pytest.mark.parametrize(
    ("language", "query", "passage"),
    [
        ("de", "Häuser", "Das ist ein Haus mit einer Tür und nicht die Wohnung der Familie, das auch wird"),
        ("es", "canciones", "Esta es una canción que se canta en las fiestas de la ciudad y por los niños"),
        ("fr", "chevaux", "Le cheval est dans le pré avec les autres et il ne mange pas une pomme pour nous"),
        ("tr", "ISPARTA", "Bu şehir ısparta ve onun için çok güzel bir yer olarak bilinir ama daha büyük"),
        ("vi", "người", "Đây là những người của chúng tôi và các bạn được mời trong một bữa tiệc"),
    ],
)
def test_query_without_a_language_when_the_passage_has_one_then_inflections_meet(encoder, language, query, passage):
    assert common(encoder, query, passage) >= 1
    assert common(encoder, query, passage, language) >= 1


def test_passage_vector_holds_saturated_frequencies(encoder):
    vector = encoder.passage_vector("apple apple pear", average_length=6.0, k1=1.2, b=0.75)
    norm = 1.2 * (0.25 + 0.75 * 3 / 6)
    assert vector.length == 3
    assert sorted(vector.values.tolist()) == pytest.approx(sorted([2 * 2.2 / (2 + norm), 2.2 / (1 + norm)]))
    assert vector.indices.dtype == np.uint32
    assert vector.values.dtype == np.float32
    assert (np.diff(vector.indices.astype(np.int64)) > 0).all()


def test_passage_vector_when_the_average_is_not_positive_then_refused(encoder):
    with pytest.raises(ValueError, match="average_length is 0"):
        encoder.passage_vector("x", average_length=0)


@pytest.mark.parametrize("text", ["", "  \n", "!?", "。", "🙂"])
def test_text_without_words_has_an_empty_vector(encoder, text):
    assert encoder.passage_vector(text, average_length=1).length == 0
    assert len(encoder.query_vector(text).indices) == 0


@pytest.mark.parametrize(
    "text", ["_", "__init__", "-" * 50, "a" * 100_000, "٣" * 5000, "²", "x\u0301", "\ud800", "中\ud800"]
)
def test_odd_text_never_fails(encoder, text):
    encoder.passage_vector(text, average_length=1)
    encoder.query_vector(text)


def test_terms_never_change_within_a_version(encoder):
    assert 2502694345 in encoder.query_vector("retrieval").indices.tolist()
    assert sorted(encoder.analyse("The RTX-4090 runs", side=Side.PASSAGE)) == ["4090", "rtx", "rtx4090", "run", "the"]
