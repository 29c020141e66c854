"""A text that begins like the mark of another format, or mentions it, is a text."""

from pathlib import Path

import pymupdf
import pytest
from PIL import Image

from services.common.errors import DocumentError, Reason
from services.domain.blocks import DocumentKind
from services.ingestor.parsing.parser import ParseOptions
from services.ingestor.parsing.sniff import sniff

TEXTS = (
    "def header(self):\n    self.out('%%PDF-%s' % self.version)\n",
    "Every file begins with %PDF-1.4 and ends with %%EOF; readers look for both.",
    "ID3 builds a decision tree by choosing the attribute with the largest gain.",
    "GIF89a is the later of the two versions of the format.",
    "BM25 weighs terms by how rare they are.",
    "MZ is how a program of this system begins.",
    "OggS and fLaC are marks of audio files.",
    "Rar! shouted the bear.",
    "PAR1 is a pipeline.",
    "The ftyp box comes first.",
    "RIFF of the WEBP kind.",
)


@pytest.mark.parametrize("text", TEXTS)
def test_sniff_when_a_text_begins_like_another_format_then_it_is_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a"
    path.write_text(text)
    assert sniff(path, ParseOptions(filename="a")) in (DocumentKind.TEXT, DocumentKind.CODE)


def test_sniff_when_a_pdf_has_junk_before_its_header_then_it_is_a_pdf(tmp_path: Path) -> None:
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "hello")
    path = tmp_path / "a"
    path.write_bytes(b"junk of a mail gateway\r\n" + document.tobytes())
    assert sniff(path, ParseOptions(filename="a")) is DocumentKind.PDF


def test_sniff_when_a_picture_is_tiny_then_it_is_an_image(tmp_path: Path) -> None:
    path = tmp_path / "a"
    Image.new("P", (1, 1)).save(path, format="GIF")
    assert sniff(path, ParseOptions(filename="a.txt")) is DocumentKind.IMAGE


@pytest.mark.parametrize("content", [b"{\\rtf1\\ansi hello}", b"%!PS-Adobe-3.0\n", b"PAR1\x15\x04\x15\x00\x00"])
def test_sniff_when_it_is_another_format_then_it_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(DocumentError) as raised:
        sniff(path, ParseOptions(filename="a.txt"))
    assert raised.value.error_reason is Reason.UNSUPPORTED_FORMAT
