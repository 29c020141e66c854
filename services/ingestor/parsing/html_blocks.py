# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""The structure of an HTML tree as blocks: headings, paragraphs, lists, tables, code."""

import re
from collections.abc import Iterator
from typing import Any

import lxml.html

from services.domain.blocks import Block, BlockKind
from services.ingestor.parsing.cleaning import clean, one_line, squeeze
from services.ingestor.parsing.html_table import is_layout_table, table_rows
from services.ingestor.parsing.tables import table_block

_SKIPPED = frozenset(
    [
        "script",
        "style",
        "noscript",
        "template",
        "head",
        "meta",
        "link",
        "svg",
        "math",
        "canvas",
        "iframe",
        "object",
        "embed",
        "audio",
        "video",
        "map",
        "select",
        "datalist",
        "input",
        "button",
        "textarea",
        "progress",
        "meter",
        "dialog",
        "frameset",
    ]
) - {"math", "button", "textarea"}
_BLOCKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "center",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hgroup",
        "hr",
        "html",
        "legend",
        "main",
        "nav",
        "p",
        "section",
        "summary",
        "li",
        "ul",
        "ol",
        "menu",
        "table",
        "tbody",
        "thead",
        "tfoot",
        "tr",
        "td",
        "th",
        "caption",
        "pre",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
    ]
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LANGUAGE = re.compile(r"(?:language|lang|highlight-source|brush:)[-_: ]?([\w+#-]+)")
_MAX_DEPTH = 200


def fragment_blocks(html: str) -> list[Block]:
    """Blocks of a piece of HTML."""
    parent: Any = "div"  # a tag or a flag; the stub knows the flag only
    return tree_blocks(lxml.html.fragment_fromstring(html, create_parent=parent))


def tree_blocks(root: Any) -> list[Block]:
    """Blocks below `root`, in document order."""
    walk = _Walk()
    walk.visit(root, 0)
    walk.flush()
    return walk.found


def skipped(element: Any) -> bool:
    """Comments, scripts and what is declared hidden."""
    if not isinstance(element.tag, str) or element.tag in _SKIPPED:
        return True
    style = (element.get("style") or "").replace(" ", "").lower()
    return element.get("hidden") is not None or "display:none" in style or "visibility:hidden" in style


class _Walk:
    """Collects inline text until a block begins or ends. Trees are flattened below a fixed depth."""

    def __init__(self) -> None:
        self.found: list[Block] = []
        self._inline: list[str] = []

    def visit(self, element: Any, depth: int) -> None:
        if skipped(element):
            return
        tag = element.tag
        if depth > _MAX_DEPTH:
            self._inline.append(_text(element))
        elif tag in _HEADINGS:
            self.flush()
            self._add(Block(kind=BlockKind.HEADING, text=one_line(_text(element)), level=_HEADINGS[tag]))
        elif tag == "pre":
            self.flush()
            self._add(Block(kind=BlockKind.CODE, text=_preformatted(element), code_language=_language(element)))
        elif tag in ("ul", "ol", "menu"):
            self.flush()
            self._list(element, depth)
        elif tag == "table":
            self.flush()
            self._table(element, depth)
        elif tag == "br":
            self._inline.append("\n")
        elif tag == "img":
            self._inline.append(f" {element.get('alt') or ''} ")
        elif tag in _BLOCKS:
            self.flush()
            self._children(element, depth)
            self.flush()
        else:
            self._children(element, depth)

    def flush(self) -> None:
        text = squeeze("".join(self._inline))
        self._inline.clear()
        self._add(Block(kind=BlockKind.PARAGRAPH, text=text))

    def _add(self, block: Block) -> None:
        if block.text.strip():
            self.found.append(block)

    def _children(self, element: Any, depth: int) -> None:
        self._inline.append(_flow(element.text))
        for child in element:
            self.visit(child, depth + 1)
            self._inline.append(_flow(child.tail))

    def _list(self, element: Any, depth: int) -> None:
        """A list of short items is one block; one that holds tables, headings or code is walked through."""
        if any(True for _ in element.iter("table", "pre", "h1", "h2", "h3", "h4")) or depth > 60:
            self._children(element, depth)
            self.flush()
            return
        text = "\n".join(_list_lines(element, 0))
        self._add(Block(kind=BlockKind.LIST, text=clean(text)))

    def _table(self, element: Any, depth: int) -> None:
        if is_layout_table(element) or depth > 60:
            self._children(element, depth)
            self.flush()
            return
        caption = element.find("caption")
        if caption is not None:
            self._add(Block(kind=BlockKind.PARAGRAPH, text=one_line(_text(caption))))
        rows, headers = table_rows(element, _text)
        block = table_block(rows, header_rows=headers)
        if block is not None:
            self.found.append(block)


def _list_lines(element: Any, depth: int) -> Iterator[str]:
    number = _start(element) if element.tag == "ol" else None
    for child in element:
        if skipped(child):
            continue
        if child.tag in ("ul", "ol", "menu"):
            yield from _list_lines(child, depth + 1)
            continue
        mark = "- " if number is None else f"{number}. "
        number = None if number is None else number + 1
        nested = [item for item in child if item.tag in ("ul", "ol", "menu")]
        text = squeeze(_text(child, without=nested))
        if text:
            yield "  " * depth + mark + text.replace("\n", "\n" + "  " * depth + "  ")
        for item in nested:
            yield from _list_lines(item, depth + 1)


def _start(element: Any) -> int:
    start = element.get("start") or ""
    return int(start) if re.fullmatch(r"-?\d{1,9}", start) else 1


def _text(element: Any, without: list[Any] | None = None) -> str:
    """All visible text below `element`; blocks and breaks end a line. Iterative, so that depth does not matter."""
    parts: list[str] = []
    barred = set(without or ())
    stack: list[tuple[Any, bool]] = [(element, False)]
    while stack:
        current, leaving = stack.pop()
        block = current.tag in _BLOCKS and current is not element
        if leaving:
            parts.append("\n" if block else "")
            parts.append(_flow(current.tail) if current is not element else "")
            continue
        if current in barred or skipped(current):
            parts.append(_flow(current.tail) if current is not element else "")
            continue
        parts.append("\n" if block or current.tag == "br" else "")
        parts.append(f" {current.get('alt')} " if current.tag == "img" and current.get("alt") else "")
        parts.append(_flow(current.text))
        parts.append(" " if current.tag in ("td", "th") else "")
        stack.append((current, True))
        stack.extend((child, False) for child in reversed(current))
    return "".join(parts)


def _flow(text: str | None) -> str:
    return re.sub(r"\s+", " ", text) if text else ""


def _preformatted(element: Any) -> str:
    for line_break in element.iter("br"):
        line_break.tail = "\n" + (line_break.tail or "")
    return clean("".join(element.itertext())).strip("\n").rstrip()


def _language(element: Any) -> str:
    for candidate in (element, *element.iterchildren("code")):
        match = _LANGUAGE.search(candidate.get("class") or "")
        if match:
            return match[1].lower()
    return ""
