from pathlib import Path

import pytest

from services.common.errors import DocumentError, Reason
from services.domain.blocks import BlockKind
from tests.fixtures.documents import docx, paragraph, zip_bytes
from tests.unit.parsing.conftest import Parse

STYLES = '<w:style w:type="paragraph" w:styleId="berschrift1"><w:name w:val="{}"/></w:style>'


def run(text: str) -> str:
    return f"<w:r><w:t xml:space='preserve'>{text}</w:t></w:r>"


def test_tracked_changes_when_parsed_then_read_as_accepted(parse: Parse, tmp_path: Path) -> None:
    deleted = "<w:del><w:r><w:delText>ten</w:delText></w:r></w:del>"
    body = f"<w:p>{run('The fee is ')}{deleted}<w:ins>{run('twelve')}</w:ins></w:p>"
    assert [b.text for b in parse(docx(tmp_path / "a.docx", body))] == ["The fee is twelve"]


def test_paragraph_when_its_mark_was_deleted_then_runs_into_the_next(parse: Parse, tmp_path: Path) -> None:
    body = paragraph("one ", "<w:rPr><w:del/></w:rPr>") + paragraph("two")
    assert [b.text for b in parse(docx(tmp_path / "a.docx", body))] == ["one two"]


def test_text_box_when_drawn_twice_for_old_readers_then_is_read_once(parse: Parse, tmp_path: Path) -> None:
    box = f"<w:txbxContent>{paragraph('in the box')}</w:txbxContent>"
    body = (
        "<w:p>" + run("outside") + "<w:r><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing><wps:txbx>" + box
        + "</wps:txbx></w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox>" + box
        + "</v:textbox></w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>"
    )  # fmt: skip
    assert [b.text for b in parse(docx(tmp_path / "a.docx", body))] == ["outside", "in the box"]


def test_footnote_when_referred_to_then_follows_its_paragraph(parse: Parse, tmp_path: Path) -> None:
    body = f"<w:p>{run('claim')}<w:r><w:footnoteReference w:id='2'/></w:r></w:p>" + paragraph("next")
    notes = f"<w:footnote w:id='2'>{paragraph('proof')}</w:footnote>"
    assert [b.text for b in parse(docx(tmp_path / "a.docx", body, footnotes=notes))] == ["claim", "proof", "next"]


def test_header_when_two_sections_share_it_then_is_read_once(parse: Parse, tmp_path: Path) -> None:
    section = "<w:sectPr><w:headerReference r:id='header1'/></w:sectPr>"
    body = paragraph("one", section) + paragraph("two") + section
    blocks = parse(docx(tmp_path / "a.docx", body, header1=paragraph("Letterhead")))
    assert [b.text for b in blocks] == ["Letterhead", "one", "two"]


@pytest.mark.parametrize("name", ["heading 1", "Überschrift 1", "Заголовок 1"])
def test_heading_when_style_is_localised_then_has_its_level(parse: Parse, tmp_path: Path, name: str) -> None:
    body = paragraph("Scope", '<w:pStyle w:val="berschrift1"/>')
    block = parse(docx(tmp_path / "a.docx", body, styles=STYLES.format(name)))[0]
    assert (block.kind, block.level) == (BlockKind.HEADING, 1)


def test_numbered_items_when_nested_then_carry_their_numbers(parse: Parse, tmp_path: Path) -> None:
    levels = "".join(
        f"<w:lvl w:ilvl='{n}'><w:start w:val='1'/><w:numFmt w:val='decimal'/><w:lvlText w:val='{text}'/></w:lvl>"
        for n, text in enumerate(("%1.", "%1.%2"))
    )
    use = "<w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num>"
    numbering = f"<w:abstractNum w:abstractNumId='0'>{levels}</w:abstractNum>{use}"
    item = "<w:numPr><w:ilvl w:val='{}'/><w:numId w:val='1'/></w:numPr>"
    body = "".join(paragraph(text, item.format(level)) for text, level in (("a", 0), ("b", 1), ("c", 1), ("d", 0)))
    block = parse(docx(tmp_path / "a.docx", body, numbering=numbering))[0]
    assert block.text.split() == ["1.", "a", "1.1", "b", "1.2", "c", "2.", "d"]


def test_table_when_cells_are_merged_then_the_text_is_in_each_place(parse: Parse, tmp_path: Path) -> None:
    def cell(text: str, properties: str = "") -> str:
        return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"

    top, under = "<w:vMerge w:val='restart'/>", "<w:vMerge/>"
    rows = [
        cell("Region", top) + cell("Sales", "<w:gridSpan w:val='2'/>"),
        cell("", under) + cell("2023") + cell("2024"),
        cell("North") + cell("1") + cell("2"),
    ]
    header = "<w:trPr><w:tblHeader/></w:trPr>"
    body = (
        "<w:tbl>" + "".join(f"<w:tr>{header if n < 2 else ''}{row}</w:tr>" for n, row in enumerate(rows)) + "</w:tbl>"
    )
    block = parse(docx(tmp_path / "a.docx", body))[0]
    assert block.rows == (("Region", "Sales", "Sales"), ("Region", "2023", "2024"), ("North", "1", "2"))
    assert block.header_rows == 2


def test_package_when_truncated_then_is_unreadable(parse: Parse, tmp_path: Path) -> None:
    path = docx(tmp_path / "a.docx", paragraph("x" * 3000))
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(DocumentError) as caught:
        parse(path)
    assert caught.value.error_reason is Reason.UNREADABLE_DOCUMENT


def test_entities_when_they_would_explode_then_are_not_expanded(parse: Parse, tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))
    document = (
        f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY e0 "ha">{entities}]>'
        '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>&e9;</w:t>'
        "</w:r></w:p></w:body></w:document>"
    )
    (tmp_path / "a.docx").write_bytes(zip_bytes({"word/document.xml": document.encode()}))
    with pytest.raises(DocumentError) as caught:
        parse(tmp_path / "a.docx")
    assert caught.value.error_reason in (Reason.DOCUMENT_LIMIT, Reason.NO_TEXT)


def test_zip_when_it_unpacks_to_too_much_then_is_a_limit(parse: Parse, tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(zip_bytes({"word/document.xml": b"<d/>", "word/media.bin": bytes(64 << 20)}))
    with pytest.raises(DocumentError) as caught:
        parse(tmp_path / "a.docx")
    assert caught.value.error_reason is Reason.DOCUMENT_LIMIT
