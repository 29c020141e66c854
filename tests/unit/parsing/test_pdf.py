from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest

from services.common.errors import DocumentError, Reason
from services.domain.blocks import BlockKind, PageRoute
from services.ingestor.parsing import ParseOptions, open_source, unlock
from tests.fixtures.documents import encrypted_pdf, pdf, ruled_table, two_columns
from tests.unit.parsing.conftest import Parse

LEFT = [f"left line {n} tells of the river and its barges" for n in range(12)]
RIGHT = [f"right line {n} tells of the hills and their sheep" for n in range(12)]


def test_two_columns_when_title_spans_them_then_left_is_read_before_right(parse: Parse, tmp_path: Path) -> None:
    text = " ".join(block.text for block in parse(two_columns(tmp_path / "a.pdf", LEFT, RIGHT, "Rivers and Hills")))
    assert text.index("Rivers and Hills") < text.index("left line 11") < text.index("right line 0")


def test_title_when_larger_than_the_text_then_is_a_heading(parse: Parse, tmp_path: Path) -> None:
    first = parse(two_columns(tmp_path / "a.pdf", LEFT, RIGHT, "Rivers and Hills"))[0]
    assert (first.kind, first.level, first.text) == (BlockKind.HEADING, 1, "Rivers and Hills")


@pytest.mark.parametrize("rotate", [90, 180, 270])
def test_text_when_page_is_rotated_then_words_and_order_stay(parse: Parse, tmp_path: Path, rotate: int) -> None:
    lines = [(60.0, 100.0 + 14 * n, f"sentence number {n} of the page") for n in range(5)]
    plain = parse(pdf(tmp_path / "a.pdf", [lines]))
    turned = parse(pdf(tmp_path / "b.pdf", [lines], rotate=rotate))
    assert [b.text for b in turned] == [b.text for b in plain]


def test_word_when_broken_at_line_end_then_is_joined(parse: Parse, tmp_path: Path) -> None:
    lines = [(60.0, 100.0, "a search for docu-"), (60.0, 114.0, "ments in state-of-the-"), (60.0, 128.0, "art systems")]
    assert "for documents in state-of-the-art systems" in parse(pdf(tmp_path / "a.pdf", [lines]))[0].text


def test_ruled_table_when_parsed_then_rows_cells_and_header_are_kept(parse: Parse, tmp_path: Path) -> None:
    rows = [("Item", "Spring", "Autumn"), ("Rye, best", "12", "14"), ("Salt", "3", "4")]
    table = next(b for b in parse(ruled_table(tmp_path / "a.pdf", rows)) if b.kind is BlockKind.TABLE)
    assert table.rows == tuple(rows)
    assert table.header_rows == 1
    assert table.text.splitlines()[1] == "Rye, best | 12 | 14"


def test_aligned_cells_when_no_lines_are_drawn_then_become_a_table(parse: Parse, tmp_path: Path) -> None:
    lines = [
        (60.0 + 130 * column, 100.0 + 16 * row, f"{'name' if not row else row * 7 + column}")
        for row in range(5)
        for column in range(4)
    ]
    table = parse(pdf(tmp_path / "a.pdf", [lines]))[0]
    assert table.kind is BlockKind.TABLE
    assert table.rows[1] == ("7", "8", "9", "10")


def test_running_header_when_on_many_pages_then_stays_once_and_body_is_whole(parse: Parse, tmp_path: Path) -> None:
    pages = [
        [(60.0, 40.0, "Annual Report of the Company"), (60.0, 200.0, f"body of page {n}"), (290.0, 820.0, str(n))]
        for n in range(1, 8)
    ]
    blocks = parse(pdf(tmp_path / "a.pdf", pages))
    assert sum("Annual Report" in b.text for b in blocks) == 1
    assert [n for n in range(1, 8) if not any(b.page == n and f"body of page {n}" in b.text for b in blocks)] == []


def test_block_when_placed_then_has_page_box_and_range_in_the_text(parse: Parse, tmp_path: Path) -> None:
    one, two = parse(pdf(tmp_path / "a.pdf", [[(60, 100, "first page")], [(60, 100, "second page")]]))
    assert (one.start, one.end, two.start) == (0, len(one.text), len(one.text) + 2)
    assert two.page == 2 and two.box is not None
    assert 55 < two.box.x0 < 65 and 85 < two.box.y0 < 100


def test_parts_when_resumed_from_a_page_then_begin_there(tmp_path: Path) -> None:
    source = open_source(pdf(tmp_path / "a.pdf", [[(60, 100, f"page {n}")] for n in range(1, 61)]), ParseOptions())
    first = next(iter(source.parts()))
    rest = list(source.parts(first.last_page + 1))
    assert first.last_page < 60 and rest[0].first_page == first.last_page + 1 and rest[-1].last_page == 60
    assert "page 60" in rest[-1].blocks[-1].text


def test_pdf_when_user_password_is_missing_or_wrong_then_asks_for_it(parse: Parse, tmp_path: Path) -> None:
    path = encrypted_pdf(tmp_path / "a.pdf", user="sesame")
    for password in (None, "wrong"):
        with pytest.raises(DocumentError) as caught:
            parse(path, password=password)
        assert caught.value.error_reason is Reason.PASSWORD_REQUIRED
        assert "sesame" not in caught.value.message
    assert "secret kept" in parse(path, password="sesame")[0].text


def test_pdf_when_only_the_owner_password_is_set_then_opens(parse: Parse, tmp_path: Path) -> None:
    assert "secret kept" in parse(encrypted_pdf(tmp_path / "a.pdf", user=""))[0].text


def test_unlock_when_user_password_is_given_then_the_copy_needs_none(parse: Parse, tmp_path: Path) -> None:
    path, copy = encrypted_pdf(tmp_path / "a.pdf", user="sesame"), tmp_path / "copy"
    assert unlock(path, ParseOptions(password="sesame"), copy)
    assert "secret kept" in parse(copy)[0].text


def test_unlock_when_nothing_is_encrypted_then_makes_no_copy(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert not unlock(pdf(tmp_path / "a.pdf", [[(60, 100, "open")]]), ParseOptions(), copy)
    assert not copy.exists()


def test_pdf_when_truncated_then_is_repaired_and_says_so(tmp_path: Path) -> None:
    path = pdf(tmp_path / "a.pdf", [[(60, 100, "words that survive")]])
    path.write_bytes(path.read_bytes()[:-60])
    part = next(iter(open_source(path, ParseOptions()).parts()))
    assert "words that survive" in part.blocks[0].text
    assert "REPAIRED" in {w.code for w in part.warnings}


def test_pdf_when_it_is_a_picture_and_ocr_is_off_then_no_text_says_why(parse: Parse, tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    pixmap = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 40, 40), False)
    pixmap.clear_with(90)
    page.insert_image(page.rect, pixmap=pixmap)
    document.save(str(tmp_path / "a.pdf"))
    with pytest.raises(DocumentError) as caught:
        parse(tmp_path / "a.pdf")
    assert caught.value.error_reason is Reason.NO_TEXT
    assert "OCR" in caught.value.message


def test_routes_when_a_page_is_blank_then_it_is_empty_and_numbers_do_not_shift(tmp_path: Path) -> None:
    path = pdf(tmp_path / "a.pdf", [[(60, 100, "one")], [], [(60, 100, "three")]])
    part = next(iter(open_source(path, ParseOptions()).parts()))
    assert part.routes == (PageRoute.TEXT, PageRoute.EMPTY, PageRoute.TEXT)
    assert [b.page for b in part.blocks] == [1, 3]


def test_form_field_when_its_value_is_not_drawn_then_is_noted(parse: Parse, tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((72, 72), "Application form")
    page.add_text_annot((100, 300), "please check the date")
    document.save(str(tmp_path / "a.pdf"))
    assert "please check the date" in [b.text for b in parse(tmp_path / "a.pdf")]


def test_metadata_when_the_file_has_it_then_is_read(tmp_path: Path) -> None:
    path = pdf(tmp_path / "a.pdf", [[(60, 100, "The quick brown fox jumps over the lazy dog every morning")]])
    with pymupdf.open(path) as document:
        document.set_metadata({"title": "On Foxes", "author": "A. Vixen", "creationDate": "D:20240102030405+01'00'"})
        document.save(str(tmp_path / "b.pdf"))
    metadata = open_source(tmp_path / "b.pdf", ParseOptions()).metadata
    assert (metadata.title, metadata.author, metadata.language) == ("On Foxes", "A. Vixen", "en")
    assert metadata.created_time is not None and metadata.created_time.isoformat() == "2024-01-02T02:04:05+00:00"
    assert replace(metadata).document_type == "pdf"


def test_text_when_a_clip_hides_it_then_is_read_unless_outside_the_page_or_over_other_text(
    parse: Parse, tmp_path: Path
) -> None:
    document = pymupdf.open()
    page = document.new_page(width=595, height=842)
    page.insert_text((60, 100), "The board met in spring and in autumn.", fontsize=11)
    for y, hidden in ((400, "Riverside Water Works"), (101, "a photograph of boats"), (-30, "crop mark")):
        page.insert_text((60, y), hidden, fontsize=11)
        drawn = page.get_contents()[-1]
        document.update_stream(drawn, b"q 500 10 20 20 re W n " + document.xref_stream(drawn) + b" Q")
    path = tmp_path / "a.pdf"
    document.save(str(path))
    text = " ".join(block.text for block in parse(path))
    assert "The board met in spring" in text
    assert "Riverside Water Works" in text
    assert "boats" not in text
    assert "crop mark" not in text
