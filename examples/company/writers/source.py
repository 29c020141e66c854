"""Reads one source: a front matter of `key: value` lines, then Markdown cut into the blocks the writers lay out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_MARKDOWN = MarkdownIt("commonmark").enable("table")
_WIDTHS = re.compile(r"<!--\s*widths:\s*([\d\s.]+)-->")
_PAGE_BREAK = "<!-- page break -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A heading; level 1 is the largest below the title."""

    level: int
    inline: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose:
    """A paragraph, a list or a code fence: Markdown tokens that stay together."""

    tokens: tuple[Token, ...]

    @property
    def html(self) -> str:
        """The tokens as HTML."""
        return _MARKDOWN.renderer.render(list(self.tokens), _MARKDOWN.options, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Callout:
    """A quoted block: a note that stands apart from the text (a text box in DOCX)."""

    tokens: tuple[Token, ...]

    @property
    def html(self) -> str:
        """The tokens inside the quotation as HTML."""
        return _MARKDOWN.renderer.render(list(self.tokens), _MARKDOWN.options, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with one header row; `widths` are relative column widths, empty when they follow from the text."""

    header: tuple[Token, ...]
    rows: tuple[tuple[Token, ...], ...]
    alignments: tuple[str, ...]
    widths: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageBreak:
    """Go on at the top of the next page."""


Block = Heading | Prose | Callout | Table | PageBreak


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One document: its front matter and its blocks in order."""

    meta: dict[str, str]
    blocks: tuple[Block, ...]


def read_source(path: Path) -> Source:
    """Read a Markdown source in UTF-8. Raises ValueError when the front matter is missing."""
    _, front, body = path.read_text(encoding="utf-8").split("---\n", 2)
    meta = dict(_pair(line) for line in front.splitlines() if line.strip())
    return Source(meta=meta, blocks=tuple(_blocks(_MARKDOWN.parse(body))))


def inline_html(inline: Token) -> str:
    """The HTML of one inline token (a heading, a cell)."""
    return _MARKDOWN.renderer.render([inline], _MARKDOWN.options, {})


def inline_text(inline: Token) -> str:
    """The plain text of one inline token."""
    return "".join(child.content for child in inline.children or [])


def _pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key.strip(), value.strip()


def _blocks(tokens: list[Token]) -> Iterator[Block]:
    widths: tuple[float, ...] = ()
    for group in _top_level(tokens):
        first = group[0]
        if first.type == "html_block":
            if _PAGE_BREAK in first.content:
                yield PageBreak()
            elif match := _WIDTHS.search(first.content):
                widths = tuple(float(number) for number in match.group(1).split())
        elif first.type == "heading_open":
            yield Heading(level=int(first.tag[1]), inline=group[1])
        elif first.type == "blockquote_open":
            yield Callout(tokens=tuple(group[1:-1]))
        elif first.type == "table_open":
            yield _table(group, widths)
            widths = ()
        else:
            yield Prose(tokens=tuple(group))


def _top_level(tokens: list[Token]) -> Iterator[list[Token]]:
    depth, group = 0, list[Token]()
    for token in tokens:
        group.append(token)
        depth += token.nesting
        if depth == 0:
            yield group
            group = []


def _table(tokens: list[Token], widths: tuple[float, ...]) -> Table:
    rows, alignments = list[list[Token]](), list[str]()
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "th_open":
            alignments.append(str(token.attrs.get("style", "text-align:left")).removeprefix("text-align:"))
        elif token.type == "inline":
            rows[-1].append(token)
    return Table(
        header=tuple(rows[0]),
        rows=tuple(tuple(row) for row in rows[1:]),
        alignments=tuple(alignments),
        widths=widths,
    )
