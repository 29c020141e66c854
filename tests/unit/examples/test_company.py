"""The example company: documents follow from their sources, and questions point at what is really there."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from pathlib import Path

import docx
import pymupdf
import pytest
from lxml import etree

from examples.company.make_documents import DOCUMENTS, HERE, SOURCES, make_documents
from examples.company.writers.pdf import write_pdf
from examples.company.writers.source import read_source
from examples.company.writers.word import write_docx

QUESTIONS = json.loads((HERE / "questions.json").read_text(encoding="utf-8"))["questions"]
ANSWERS = [
    pytest.param(answer, id=f"{question['id']}-{answer['file']}")
    for question in QUESTIONS
    for answer in question["answers"]
]
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


@cache
def pages(path: Path) -> list[str]:
    """The text of each page; files without pages have one."""
    if path.suffix == ".pdf":
        with pymupdf.open(path) as document:
            return [page.get_text() for page in document]
    if path.suffix == ".docx":
        with zipfile.ZipFile(path) as package:
            names = [part for part in package.namelist() if re.fullmatch(r"word/(document|footnotes)\.xml", part)]
            parts = [etree.fromstring(package.read(part)) for part in names]
        return ["".join(text.text or "" for part in parts for text in part.iter(f"{W}t"))]
    raw = path.read_bytes().decode("gb18030" if "gb18030" in path.name else "utf-8")
    return [re.sub(r"<[^>]+>", " ", raw).replace("&nbsp;", " ") if path.suffix == ".html" else raw]


def test_writers_when_run_twice_then_every_byte_is_the_same() -> None:
    prices, warranty = (read_source(SOURCES / name) for name in ("price-list-2026.pdf.md", "warranty-terms.docx.md"))
    assert write_pdf(prices) == write_pdf(prices)
    assert write_docx(warranty) == write_docx(warranty)


def test_documents_when_made_again_then_they_say_what_the_checked_in_ones_say(tmp_path: Path) -> None:
    made = make_documents(tmp_path)
    assert {path.name for path in made} == {path.name for path in DOCUMENTS.iterdir()}
    for path in made:
        assert pages(path) == pages(DOCUMENTS / path.name), path.name


def test_documents_when_counted_then_they_stay_small() -> None:
    assert sum(path.stat().st_size for path in DOCUMENTS.iterdir()) < 1_500_000


@pytest.mark.parametrize("answer", ANSWERS)
def test_question_when_its_answer_is_looked_up_then_phrase_and_section_are_there(answer: dict[str, str | int]) -> None:
    texts = pages(DOCUMENTS / str(answer["file"]))
    text = texts[int(answer["page"]) - 1] if "page" in answer else texts[0]
    assert squeezed(str(answer["phrase"])) in squeezed(text)
    assert squeezed(str(answer["section"])) in squeezed("".join(texts))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["id"])
def test_question_when_it_is_in_a_pdf_then_it_names_the_page(question: dict[str, list[dict[str, object]]]) -> None:
    assert all(("page" in answer) == str(answer["file"]).endswith(".pdf") for answer in question["answers"])


def test_questions_when_listed_then_both_languages_both_versions_and_cross_lingual_are_covered() -> None:
    files = {answer["file"] for question in QUESTIONS for answer in question["answers"]}
    assert files == {path.name for path in DOCUMENTS.iterdir()}
    assert {question["language"] for question in QUESTIONS} == {"en", "zh"}
    assert any(question.get("cross_lingual") for question in QUESTIONS)
    assert any(not question["answers"] for question in QUESTIONS)


@pytest.mark.parametrize("name", ["travel-expense-policy-2025.docx", "travel-expense-policy-2026.docx"])
def test_policy_when_opened_then_footnote_text_box_table_and_lists_are_real_word_structures(name: str) -> None:
    document = docx.Document(str(DOCUMENTS / name))
    body = document.element.body
    assert len(list(body.iter(f"{W}footnoteReference"))) == 1
    assert len(list(body.iter(f"{W}txbxContent"))) == 2  # the drawing and its VML fallback
    assert all(table.rows[0]._tr.find(f"{W}trPr/{W}tblHeader") is not None for table in document.tables)
    assert {"List Bullet", "List Number", "Heading 1", "Heading 2"} <= {p.style.name for p in document.paragraphs}


def test_pdf_when_fonts_are_listed_then_all_are_embedded_subsets() -> None:
    for path in DOCUMENTS.glob("*.pdf"):
        with pymupdf.open(path) as document:
            fonts = {font[3] for page in document for font in page.get_fonts()}
        assert fonts
        assert all(re.match(r"[A-Z]{6}\+", font) for font in fonts), path.name
