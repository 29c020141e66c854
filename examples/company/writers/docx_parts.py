"""WordprocessingML that python-docx does not write itself: footnotes, text boxes, field codes, list restarts."""

from __future__ import annotations

from xml.sax.saxutils import escape

from docx.document import Document
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn
from docx.text.paragraph import Paragraph

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_FOOTNOTES_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
_EMU_PER_PT = 12_700


def add_reference(paragraph: Paragraph, number: int) -> None:
    """Put the mark of footnote `number` at the end of the paragraph."""
    paragraph._p.append(
        parse_xml(
            f'<w:r {nsdecls("w")}><w:rPr><w:vertAlign w:val="superscript"/></w:rPr>'
            f'<w:footnoteReference w:id="{number}"/></w:r>'
        )
    )


def add_footnotes(document: Document, notes: list[str]) -> None:
    """Store the texts of footnotes 1..n as the footnotes part of the document."""
    separators = (
        '<w:footnote w:type="separator" w:id="-1"><w:p><w:r><w:separator/></w:r></w:p></w:footnote>'
        '<w:footnote w:type="continuationSeparator" w:id="0">'
        "<w:p><w:r><w:continuationSeparator/></w:r></w:p></w:footnote>"
    )
    bodies = "".join(_footnote(number, text) for number, text in enumerate(notes, start=1))
    declaration = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
    xml = f'{declaration}<w:footnotes xmlns:w="{_W}">{separators}{bodies}</w:footnotes>'
    part = Part(PackURI("/word/footnotes.xml"), _FOOTNOTES_TYPE, xml.encode(), document.part.package)
    document.part.relate_to(part, RELATIONSHIP_TYPE.FOOTNOTES)


def _footnote(number: int, text: str) -> str:
    return (
        f'<w:footnote w:id="{number}"><w:p><w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:footnoteRef/></w:r>'
        f'<w:r><w:rPr><w:sz w:val="17"/></w:rPr><w:t xml:space="preserve"> {escape(text)}</w:t></w:r>'
        "</w:p></w:footnote>"
    )


def add_text_box(paragraph: Paragraph, lines: list[str], *, number: int, width_pt: float, height_pt: float) -> None:
    """Anchor a text box to the paragraph: a drawing with its older VML form as the fallback, as Word itself writes."""
    content = "".join(
        f'<w:p><w:r><w:rPr><w:sz w:val="19"/></w:rPr><w:t xml:space="preserve">{escape(line)}</w:t></w:r></w:p>'
        for line in lines
    )
    width, height = int(width_pt * _EMU_PER_PT), int(height_pt * _EMU_PER_PT)
    paragraph._p.append(
        parse_xml(
            f"""<w:r {nsdecls("w", "wp", "a")}
 xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"
 xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"
 xmlns:v="urn:schemas-microsoft-com:vml"><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing>
<wp:inline distT="0" distB="0" distL="0" distR="0"><wp:extent cx="{width}" cy="{height}"/>
<wp:docPr id="{number}" name="Text Box {number}"/><a:graphic>
<a:graphicData uri="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"><wps:wsp>
<wps:cNvSpPr txBox="1"/><wps:spPr><a:xfrm><a:off x="0" y="0"/><a:ext cx="{width}" cy="{height}"/></a:xfrm>
<a:prstGeom prst="rect"><a:avLst/></a:prstGeom><a:solidFill><a:srgbClr val="F6EEE9"/></a:solidFill>
<a:ln w="9525"><a:solidFill><a:srgbClr val="8A3B12"/></a:solidFill></a:ln></wps:spPr>
<wps:txbx><w:txbxContent>{content}</w:txbxContent></wps:txbx><wps:bodyPr lIns="91440" tIns="45720"/></wps:wsp>
</a:graphicData></a:graphic></wp:inline></w:drawing></mc:Choice><mc:Fallback><w:pict>
<v:shape style="width:{width_pt:.0f}pt;height:{height_pt:.0f}pt" fillcolor="#F6EEE9" strokecolor="#8A3B12">
<v:textbox><w:txbxContent>{content}</w:txbxContent></v:textbox></v:shape></w:pict></mc:Fallback>
</mc:AlternateContent></w:r>"""
        )
    )


def add_page_number(paragraph: Paragraph) -> None:
    """Append the current page number as a field."""
    for instruction in (
        '<w:fldChar w:fldCharType="begin"/>',
        '<w:instrText xml:space="preserve"> PAGE </w:instrText>',
        '<w:fldChar w:fldCharType="separate"/>',
        "<w:t>1</w:t>",
        '<w:fldChar w:fldCharType="end"/>',
    ):
        paragraph._p.append(parse_xml(f"<w:r {nsdecls('w')}>{instruction}</w:r>"))


def restarted_numbering(document: Document, style: str) -> int:
    """A new list id with the look of the style's list, counting from 1 again."""
    numbering = document.part.numbering_part.element
    style_num = document.styles[style].element.find(f".//{qn('w:numId')}").get(qn("w:val"))
    abstract = next(num for num in numbering.findall(qn("w:num")) if num.get(qn("w:numId")) == style_num)
    abstract_id = abstract.find(qn("w:abstractNumId")).get(qn("w:val"))
    num = numbering.add_num(int(abstract_id))
    num.add_lvlOverride(ilvl=0).add_startOverride(1)
    return int(num.numId)
