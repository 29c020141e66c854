"""The text of a Word paragraph as it reads with all changes accepted, and what hangs on it (notes, text boxes)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.ingestor.parsing.ooxml import Element, alternatives, attribute, child, local, switched_on

_GONE = frozenset(
    {"del", "moveFrom", "delText", "delInstrText", "instrText", "pPr", "rPr", "rt", "rubyPr", "sdtPr", "sdtEndPr"}
)
_MATH_PROPERTIES = frozenset(
    {
        "fPr",
        "sSupPr",
        "sSubPr",
        "sSubSupPr",
        "radPr",
        "naryPr",
        "dPr",
        "ctrlPr",
        "funcPr",
        "accPr",
        "mPr",
        "oMathParaPr",
    }
)
_SYMBOLS = {
    0xF0B7: "•", 0xF0A7: "▪", 0xF0FC: "✓", 0xF0FE: "☑", 0xF0A8: "☐", 0xF06F: "☐", 0xF0E0: "→", 0xF0D8: "➢", 0xF0B0: "°",
    0xF0B1: "±", 0xF0B3: "≥", 0xF0A3: "≤", 0xF0B4: "×", 0xF06D: "μ", 0xF061: "α", 0xF062: "β", 0xF070: "π",
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Anchored:
    """What stands in a paragraph but is read after it, in order of appearance."""

    boxes: list[Element] = field(default_factory=list[Element])
    footnotes: list[str] = field(default_factory=list[str])
    endnotes: list[str] = field(default_factory=list[str])
    pictures: list[str] = field(default_factory=list[str])


def paragraph_text(paragraph: Element, anchored: Anchored) -> str:
    return "".join(_pieces(paragraph, anchored))


def mark_deleted(paragraph: Element) -> bool:
    """Whether the paragraph's end was deleted: once accepted, the next paragraph follows on the same line."""
    properties = child(paragraph, "pPr", "rPr")
    return child(properties, "del") is not None or child(properties, "moveFrom") is not None


def _pieces(element: Element, anchored: Anchored) -> Iterator[str]:
    for entry in element:
        name = local(entry)
        if not name or name in _GONE or name in _MATH_PROPERTIES:
            continue
        if name == "AlternateContent":
            for inner in alternatives(entry):
                yield from _piece(inner, local(inner), anchored)
        else:
            yield from _piece(entry, name, anchored)


def _piece(entry: Element, name: str, anchored: Anchored) -> Iterator[str]:  # noqa: PLR0912  one case a name
    match name:
        case "t":
            yield entry.text or ""
        case "tab" | "ptab":
            yield "\t"
        case "br" | "cr":
            yield "\n"
        case "noBreakHyphen":
            yield "\u2011"
        case "softHyphen" | "lastRenderedPageBreak":
            return
        case "sym":
            yield _symbol(entry)
        case "footnoteReference":
            anchored.footnotes.append(attribute(entry, "id") or "")
        case "endnoteReference":
            anchored.endnotes.append(attribute(entry, "id") or "")
        case "r":
            if not switched_on(entry, "rPr", "vanish"):
                yield from _pieces(entry, anchored)
        case "drawing" | "pict" | "object":
            _anchor(entry, anchored)
        case "f":
            numerator, denominator = child(entry, "num"), child(entry, "den")
            yield "".join(_pieces(numerator, anchored)) if numerator is not None else ""
            yield "/"
            yield "".join(_pieces(denominator, anchored)) if denominator is not None else ""
        case "chr" | "begChr" | "endChr":
            return
        case _:
            yield from _pieces(entry, anchored)


def _anchor(drawing: Element, anchored: Anchored) -> None:
    """Text boxes inside a drawing, each branch of alternatives once; without one, the picture's description."""
    boxes = list(_text_boxes(drawing))
    anchored.boxes.extend(boxes)
    if boxes:
        return
    for entry in drawing.iter():
        if local(entry) == "docPr" and (attribute(entry, "descr") or "").strip():
            anchored.pictures.append(attribute(entry, "descr") or "")
            return


def _text_boxes(element: Element) -> Iterator[Element]:
    for entry in element:
        name = local(entry)
        if name == "txbxContent":
            yield entry
        elif name == "AlternateContent":
            for inner in alternatives(entry):
                if local(inner) == "txbxContent":
                    yield inner
                else:
                    yield from _text_boxes(inner)
        elif name == "textbox" or name:
            yield from _text_boxes(entry)


def _symbol(entry: Element) -> str:
    try:
        code = int(attribute(entry, "char") or "", 16)
    except ValueError:
        return ""
    if code in _SYMBOLS:
        return _SYMBOLS[code]
    return "" if 0xE000 <= code <= 0xF8FF else chr(code)
