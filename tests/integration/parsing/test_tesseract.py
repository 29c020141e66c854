from pathlib import Path

import numpy as np
import pymupdf
import pytest

from services.ingestor.parsing.ocr import Image
from services.ingestor.parsing.tesseract import Tesseract, find_tesseract
from tests.fixtures.documents import pdf


@pytest.fixture
def tesseract() -> Tesseract:
    found = find_tesseract()
    if found is None:
        pytest.skip("the program tesseract is not installed")
    return found


def picture(tmp_path: Path, lines: list[str]) -> Image:
    """A page with these lines, 30 points apart from 100 on, at 2 pixels a point."""
    page = [(60.0, 100.0 + 30 * row, line) for row, line in enumerate(lines)]
    with pymupdf.open(pdf(tmp_path / "page.pdf", [page], size=16)) as document:
        pixels = document[0].get_pixmap(matrix=pymupdf.Matrix(2, 2), alpha=False)
    return np.frombuffer(pixels.samples, dtype=np.uint8).reshape(pixels.height, pixels.width, 3)


def test_picture_when_read_then_lines_come_with_their_places(tesseract: Tesseract, tmp_path: Path) -> None:
    lines = ["The ferry leaves at seven", "and comes back at noon"]
    found = sorted(tesseract.read(picture(tmp_path, lines)), key=lambda line: line.corners[0, 1])
    assert [line.text for line in found] == lines
    for row, line in enumerate(found):
        left, top = line.corners.min(axis=0)
        bottom = line.corners.max(axis=0)[1]
        assert left == pytest.approx(120, abs=8)
        assert top < 2 * (100 + 30 * row) <= bottom + 8
        assert line.score > 0.8


def test_program_when_it_fails_then_no_lines(tmp_path: Path) -> None:
    program = tmp_path / "tesseract"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    assert Tesseract(str(program), ("eng",)).read(np.zeros((8, 8, 3), dtype=np.uint8)) == []
