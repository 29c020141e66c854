from pathlib import Path

import pytest

from services.common.errors import DocumentError, Reason
from services.domain.blocks import BlockKind, DocumentKind
from services.ingestor.parsing import ParseOptions, open_source
from services.ingestor.parsing.encoding import decode
from tests.fixtures.documents import xlsx
from tests.unit.parsing.conftest import Parse

RUSSIAN = (
    "Однажды в студёную зимнюю пору я из лесу вышел, был сильный мороз. Гляжу, поднимается медленно в гору лошадка."
)
CHINESE = "我们在这里讨论的是中国的历史，以及它对世界的影响。这个问题没有简单的答案，但是大家都应该知道。"
JAPANESE = "これは日本語の文章です。エンコーディングを正しく判定できるかどうかを確認するために書かれています。"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (RUSSIAN, "cp1251"), (RUSSIAN, "koi8_r"), (RUSSIAN, "utf-16-le"), (RUSSIAN, "utf-8-sig"), (CHINESE, "gb18030"),
        (JAPANESE, "shift_jis"), (JAPANESE, "euc_jp"), (JAPANESE, "iso2022_jp"),
        ("plain words, nothing else", "utf-16-be"),
        ("plain words, nothing else " * 3, "utf-32-le"), ("Ein schöner Gruß aus München, für 15,50 €", "cp1252"),
    ],
)  # fmt: skip
def test_decode_when_the_encoding_is_not_named_then_the_text_is_right(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


def test_decode_when_declared_wrongly_then_the_bytes_win() -> None:
    assert decode("Größe".encode(), "iso-8859-1").text == "Größe"


def kind_of(tmp_path: Path, name: str, data: bytes) -> DocumentKind:
    (tmp_path / name).write_bytes(data)
    return open_source(tmp_path / name, ParseOptions(filename=name)).kind


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.pdf", b"just a line of text", DocumentKind.TEXT),
        ("a.txt", b"<!DOCTYPE html><html><body><p>hi</p></body></html>", DocumentKind.HTML),
        ("a.py", b"def f():\n    return 1\n", DocumentKind.CODE),
        ("run", b"#!/usr/bin/env python3\nprint(1)\n", DocumentKind.CODE),
        ("notes.md", b"# Title\n\ntext\n", DocumentKind.MARKDOWN),
        ("x", b"a,b,c\n1,2,3\n4,5,6\n", DocumentKind.CSV),
    ],
)
def test_kind_when_sniffed_then_follows_the_content(tmp_path: Path, name: str, data: bytes, kind: DocumentKind) -> None:
    assert kind_of(tmp_path, name, data) is kind


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", Reason.EMPTY_FILE), (b"\x7fELF" + bytes(99), Reason.UNSUPPORTED_FORMAT), (b"  \n ", Reason.NO_TEXT)],
)
def test_file_when_it_cannot_be_used_then_says_why(parse: Parse, tmp_path: Path, data: bytes, reason: Reason) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(DocumentError) as caught:
        parse(tmp_path / "a.txt")
    assert caught.value.error_reason is reason


def test_markdown_when_a_fence_holds_a_hash_then_it_is_no_heading(parse: Parse, tmp_path: Path) -> None:
    front = "---\ntitle: Guide\ntags: [a, b]\n---\n"
    fence = "```sh\n# not a heading\n\n## nor this\n```\n"
    text = f"{front}# One\n\n{fence}\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    (tmp_path / "a.md").write_text(text)
    blocks = parse(tmp_path / "a.md")
    assert [(b.kind, b.text) for b in blocks] == [
        (BlockKind.HEADING, "One"),
        (BlockKind.CODE, "# not a heading\n\n## nor this"),
        (BlockKind.TABLE, "a | b\n1 | 2"),
    ]
    metadata = open_source(tmp_path / "a.md", ParseOptions()).metadata
    assert (metadata.title, metadata.tags) == ("Guide", ("a", "b"))


def test_html_when_it_has_navigation_then_the_article_is_kept_and_spans_are_filled(
    parse: Parse, tmp_path: Path
) -> None:
    article = "<h1>Tides</h1>" + "<p>The moon pulls the sea twice a day, and the sun helps it at new moon.</p>" * 6
    table = "<table><tr><th rowspan=2>Port</th><th>High</th></tr><tr><td>6.2</td></tr></table>"
    navigation, footer = "<nav><a href=/>Home</a><a href=/x>Shop</a></nav>", "<footer><a>Imprint</a></footer>"
    page = f"<html><body>{navigation}{article}{table}{footer}</body></html>"
    (tmp_path / "a.html").write_text(page)
    blocks = parse(tmp_path / "a.html")
    assert blocks[0].kind is BlockKind.HEADING and blocks[0].text == "Tides"
    assert not any("Shop" in b.text or "Imprint" in b.text for b in blocks)
    assert blocks[-1].rows == (("Port", "High"), ("Port", "6.2"))


def test_csv_when_ids_have_zeros_and_a_mark_leads_then_values_are_exact(parse: Parse, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("\ufeffid;zip\n12345678901234567890;01234\n".encode())
    block = parse(tmp_path / "a.csv")[0]
    assert block.rows == (("id", "zip"), ("12345678901234567890", "01234"))
    assert block.header_rows == 1


def test_workbook_when_cells_have_formats_and_errors_then_show_as_in_the_sheet(parse: Parse, tmp_path: Path) -> None:
    styles = (
        '<numFmts><numFmt numFmtId="170" formatCode="00000"/></numFmts>'
        '<cellXfs><xf numFmtId="0"/><xf numFmtId="170"/><xf numFmtId="14"/></cellXfs>'
    )
    row = (
        '<row r="2"><c r="B2" s="1"><v>1234</v></c><c r="C2" t="e"><v>#DIV/0!</v></c><c r="D2"><v>12345678901</v></c>'
        '<c r="E2" s="2"><v>45292</v></c><c r="F2"><f>1+1</f><v>2</v></c></row>'
    )
    heading, table = parse(xlsx(tmp_path / "a.xlsx", row, styles=styles))
    assert heading.text == "Data"
    assert table.rows == (("01234", "#DIV/0!", "12345678901", "2024-01-01", "2"),)


def test_workbook_when_two_cells_span_the_whole_sheet_then_is_a_limit(parse: Parse, tmp_path: Path) -> None:
    rows = '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    with pytest.raises(DocumentError) as caught:
        parse(xlsx(tmp_path / "a.xlsx", rows))
    assert caught.value.error_reason is Reason.DOCUMENT_LIMIT


def test_workbook_when_it_declares_entities_then_is_refused(parse: Parse, tmp_path: Path) -> None:
    shared = '<!DOCTYPE s [<!ENTITY a "ha">]><sst><si><t>&a;</t></si></sst>'
    with pytest.raises(DocumentError) as caught:
        parse(xlsx(tmp_path / "a.xlsx", '<row r="1"><c r="A1"><v>1</v></c></row>', shared=shared))
    assert caught.value.error_reason is Reason.UNREADABLE_DOCUMENT
