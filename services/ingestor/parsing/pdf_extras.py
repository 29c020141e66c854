# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
"""What a PDF says outside its page contents: form fields, notes, attached files."""

from collections.abc import Sequence
from typing import Any

from services.domain.blocks import Block, BlockKind, BoundingBox
from services.ingestor.parsing.cleaning import one_line, squeeze

_NOTES = frozenset({"Text", "FreeText", "Highlight", "Underline", "Squiggly", "StrikeOut", "Stamp", "Caret"})
_MAX_FILES = 200


def page_extras(page: Any, number: int, blocks: Sequence[Block]) -> list[Block]:
    """Values of form fields and texts of notes that the page's own text does not show."""
    if page.first_widget is None and page.first_annot is None:
        return []
    shown = "".join("".join(block.text.split()) for block in blocks)
    found: list[Block] = []
    for widget in page.widgets():
        value = _value(widget)
        if value and "".join(value.split()) not in shown:
            name = one_line(widget.field_label or widget.field_name or "")
            found.append(_block(f"{name}: {value}" if name else value, widget.rect, number))
    for annotation in page.annots():
        kind = annotation.type[1]
        text = squeeze(annotation.info.get("content") or "")
        if kind in _NOTES and text and "".join(text.split()) not in shown:
            found.append(_block(text, annotation.rect, number))
    return found


def embedded_files(document: Any) -> list[Block]:
    """The names and descriptions of attached files (a portfolio has little else), as one list."""
    lines: list[str] = []
    for index in range(min(document.embfile_count(), _MAX_FILES)):
        info = document.embfile_info(index)
        name = one_line(info.get("ufilename") or info.get("filename") or info.get("name") or "")
        about = one_line(info.get("description") or info.get("desc") or "")
        lines.append(f"- {name}: {about}" if about and about != name else f"- {name}")
    return [Block(kind=BlockKind.LIST, text="Attached files:\n" + "\n".join(lines), page=1)] if lines else []


def _value(widget: Any) -> str:
    kind = widget.field_type_string
    if kind in ("Button", "Signature"):
        return ""
    value = widget.field_value
    if kind in ("CheckBox", "RadioButton"):
        return "" if value in (None, False, "Off", "", "No") else "yes"
    if isinstance(value, list | tuple):
        return squeeze(", ".join(str(entry) for entry in value))
    return squeeze(str(value or ""))


def _block(text: str, rect: Any, number: int) -> Block:
    box = BoundingBox(page=number, x0=rect.x0, y0=rect.y0, x1=rect.x1, y1=rect.y1)
    return Block(kind=BlockKind.PARAGRAPH, text=text, page=number, box=box)
