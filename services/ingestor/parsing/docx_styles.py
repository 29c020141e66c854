"""Styles and numbering of a Word document: which paragraph is a heading, and which label a list item carries."""

import re
from dataclasses import dataclass, field

from services.ingestor.parsing.ooxml import Element, Package, attribute, child, child_value, local

_HEADING_NAMES = re.compile(
    r"(?:heading|überschrift|titre|título|encabezado|titolo|kop|rubrik|overskrift|otsikko|nagłówek|nadpis|címsor|"
    r"başlık|заголовок|επικεφαλίδα|כותרת|标题|標題|見出し|제목)\s*([1-9])",
    re.I,
)
_TITLES = frozenset({"title", "titel", "titre", "título", "titolo", "标题", "標題", "表題", "제목", "название"})
_MAX_BASED_ON = 12
_ROMAN = (
    (1000, "m"),
    (900, "cm"),
    (500, "d"),
    (400, "cd"),
    (100, "c"),
    (90, "xc"),
    (50, "l"),
    (40, "xl"),
    (10, "x"),
    (9, "ix"),
    (5, "v"),
    (4, "iv"),
    (1, "i"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedLevel:
    format: str
    text: str
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLabel:
    """`text` is what stands before the paragraph ("2.1", "-", "a)"); `depth` counts from 0."""

    text: str
    depth: int


@dataclass(slots=True, kw_only=True)
class Styles:
    """Style definitions by id, asked through their chain of ancestors."""

    elements: dict[str, Element] = field(default_factory=dict[str, Element])
    default: str = ""

    @classmethod
    def of(cls, root: Element | None) -> "Styles":
        styles = cls()
        for style in root if root is not None else ():
            if local(style) == "style" and attribute(style, "type") in (None, "paragraph"):
                identity = attribute(style, "styleId") or ""
                styles.elements[identity] = style
                if (attribute(style, "default") or "0").lower() in ("1", "true", "on"):
                    styles.default = identity
        return styles

    def heading_level(self, paragraph: Element) -> int:
        """1 to 9 for a heading (Title is 1), 0 for other text."""
        properties = child(paragraph, "pPr")
        level = _outline(child_value(properties, "outlineLvl"))
        if level is not None:
            return level
        for style in self._chain(child_value(properties, "pStyle")):
            level = _outline(child_value(style, "pPr", "outlineLvl"))
            if level is not None:
                return level
            name = (child_value(style, "name") or attribute(style, "styleId") or "").strip().lower()
            match = _HEADING_NAMES.fullmatch(name)
            if match:
                return int(match[1])
            if name in _TITLES:
                return 1
        return 0

    def numbering(self, paragraph: Element) -> tuple[str, int] | None:
        """(numId, level) of a list item; None for other text."""
        properties = child(paragraph, "pPr")
        style_id = child_value(properties, "pStyle")
        for source in (properties, *(child(style, "pPr") for style in self._chain(style_id))):
            number = child_value(source, "numPr", "numId")
            level = child_value(source, "numPr", "ilvl")
            if number is not None:
                return None if number == "0" else (number, _number(level))
        return None

    def _chain(self, style_id: str | None) -> list[Element]:
        found: list[Element] = []
        current = style_id or self.default
        while current in self.elements and len(found) < _MAX_BASED_ON:
            found.append(self.elements[current])
            current = child_value(self.elements[current], "basedOn") or ""
        return found


class Numbering:
    """Counts the items of every list as Word does. One per document: it remembers where each list is."""

    def __init__(self, package: Package, part: str) -> None:
        root = package.xml(part) if part else None
        abstract: dict[str, dict[int, NumberedLevel]] = {}
        self._levels: dict[str, dict[int, NumberedLevel]] = {}
        self._list_of: dict[str, str] = {}
        self._counters: dict[str, dict[int, int]] = {}
        for entry in root if root is not None else ():
            identity = attribute(entry, "abstractNumId") or ""
            if local(entry) == "abstractNum":
                abstract[identity] = {
                    _number(attribute(lvl, "ilvl")): _level(lvl) for lvl in entry if local(lvl) == "lvl"
                }
        for entry in root if root is not None else ():
            if local(entry) == "num":
                number, base = attribute(entry, "numId") or "", child_value(entry, "abstractNumId") or ""
                overrides = {
                    _number(attribute(o, "ilvl")): _level(inner)
                    for o in entry
                    if local(o) == "lvlOverride" and (inner := child(o, "lvl")) is not None
                }
                restarts = any(child(o, "startOverride") is not None for o in entry if local(o) == "lvlOverride")
                self._levels[number] = {**abstract.get(base, {}), **overrides}
                self._list_of[number] = number if restarts else f"abstract {base}"

    def next_label(self, number: str, depth: int) -> ListLabel:
        """The label of the next item of list `number` at `depth`."""
        levels = self._levels.get(number, {})
        level = levels.get(depth)
        if level is None or level.format in ("bullet", "none"):
            return ListLabel(text="-" if level is None or level.format == "bullet" else "", depth=depth)
        counters = self._counters.setdefault(self._list_of[number], {})
        counters[depth] = counters.get(depth, level.start - 1) + 1
        for deeper in [d for d in counters if d > depth]:
            del counters[deeper]

        def shown(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            other = levels.get(at)
            return numeral(counters.get(at, other.start if other else 1), other.format if other else "decimal")

        return ListLabel(text=re.sub(r"%([1-9])", shown, level.text), depth=depth)


def numeral(value: int, form: str) -> str:
    """A number as a list shows it."""
    match form:
        case "lowerLetter" | "upperLetter" if value > 0:
            letter = chr(ord("a") + (value - 1) % 26) * ((value - 1) // 26 + 1)
            return letter.upper() if form == "upperLetter" else letter
        case "lowerRoman" | "upperRoman" if 0 < value < 4000:
            digits = ""
            for amount, sign in _ROMAN:
                while value >= amount:
                    value -= amount
                    digits += sign
            return digits.upper() if form == "upperRoman" else digits
        case "decimalZero":
            return f"{value:02}"
        case _:
            return str(value)


def _level(element: Element) -> NumberedLevel:
    start = child_value(element, "start")
    return NumberedLevel(
        format=child_value(element, "numFmt") or "decimal",
        text=child_value(element, "lvlText") or "",
        start=_number(start, 1),
    )


def _outline(value: str | None) -> int | None:
    """Levels 0 to 8 are headings; 9 is body text, said explicitly."""
    if value is None or not value.isdigit():
        return None
    return int(value) + 1 if int(value) < 9 else 0


def _number(value: str | None, default: int = 0) -> int:
    return int(value) if value is not None and value.isdigit() else default
