"""Markdown by its token stream: headings, lists, fences and tables as they are, inline marks removed."""

import re
from dataclasses import replace
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.domain.blocks import Block, BlockKind, ParseWarning
from services.ingestor.parsing.cleaning import clean, squeeze
from services.ingestor.parsing.front_matter import split_front_matter
from services.ingestor.parsing.markdown_limits import MAX_NESTING, why_too_hard
from services.ingestor.parsing.metadata import short
from services.ingestor.parsing.parser import ParseOptions, Reading
from services.ingestor.parsing.plain import load, text_blocks
from services.ingestor.parsing.tables import table_block

_TAG = re.compile(r"<[^>]+>")
_COMMENT = re.compile(r"<!--.*?-->", re.S)


def read_markdown(path: Path, options: ParseOptions) -> Reading:
    decoded, warnings = load(path, options)
    metadata, body = split_front_matter(clean(decoded.text))
    why = why_too_hard(body)
    if why:
        warning = ParseWarning(code="READ_AS_TEXT", message=f"the Markdown was read as plain text: {why}")
        return Reading(blocks=text_blocks(body), metadata=metadata, warnings=(*warnings, warning))
    blocks = tuple(markdown_blocks(body))
    if not metadata.title:
        first = next((block for block in blocks if block.kind is BlockKind.HEADING and block.level == 1), None)
        metadata = replace(metadata, title=short(first.text) if first else "")
    return Reading(blocks=blocks, metadata=metadata, warnings=warnings)


def markdown_blocks(text: str) -> list[Block]:
    """The blocks of a Markdown text without front matter (CommonMark, with tables and strike-through)."""
    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": MAX_NESTING}).enable(["table", "strikethrough"])
    return _Walk(parser.parse(text)).blocks()


class _Walk:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def blocks(self) -> list[Block]:
        found: list[Block] = []
        while self._at < len(self._tokens):
            found.extend(block for block in self._next() if block.text.strip())
        return found

    def _next(self) -> list[Block]:  # noqa: PLR0911  one case a token
        token = self._take()
        match token.type:
            case "heading_open":
                text = inline_text(self._take())
                return [Block(kind=BlockKind.HEADING, text=" ".join(text.split()), level=int(token.tag[1:]))]
            case "inline":
                return [Block(kind=BlockKind.PARAGRAPH, text=squeeze(inline_text(token)))]
            case "fence" | "code_block":
                language = token.info.split()[0] if token.info.strip() else ""
                return [Block(kind=BlockKind.CODE, text=token.content.rstrip("\n"), code_language=language)]
            case "html_block":
                return _html(token.content)
            case "bullet_list_open" | "ordered_list_open":
                return self._list(token, depth=0)
            case "table_open":
                return self._table()
            case _:
                return []

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _list(self, opening: Token, depth: int) -> list[Block]:
        """One LIST block for the whole list; code and tables inside it stand as blocks of their own, in order."""
        found: list[Block] = []
        lines: list[str] = []
        number = int(opening.attrs.get("start", 1) or 1) if opening.type == "ordered_list_open" else None
        mark = ""

        def flush() -> None:
            if lines:
                found.append(Block(kind=BlockKind.LIST, text="\n".join(lines)))
                lines.clear()

        while self._at < len(self._tokens):
            token = self._take()
            if token.type in ("bullet_list_close", "ordered_list_close"):
                break
            if token.type == "list_item_open":
                mark = "- " if number is None else f"{number}. "
                number = None if number is None else number + 1
            elif token.type in ("bullet_list_open", "ordered_list_open"):
                for block in self._list(token, depth + 1):
                    if block.kind is BlockKind.LIST:
                        lines.append(block.text)
                    else:
                        flush()
                        found.append(block)
            elif token.type == "inline":
                text = squeeze(inline_text(token))
                lines.append("  " * depth + mark + text.replace("\n", "\n" + "  " * depth + " " * len(mark)))
                mark = " " * len(mark)
            elif token.type in ("fence", "code_block", "table_open", "heading_open", "html_block"):
                self._at -= 1
                flush()
                found.extend(self._next())
        flush()
        return found

    def _table(self) -> list[Block]:
        rows: list[list[str]] = []
        headers = 0
        while self._at < len(self._tokens):
            token = self._take()
            if token.type == "table_close":
                break
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline" and rows:
                rows[-1].append(inline_text(token))
            elif token.type == "thead_close":
                headers = len(rows)
        block = table_block(rows, header_rows=headers)
        return [block] if block else []


def inline_text(token: Token) -> str:
    """What a reader sees of an inline token: text, code, the alternative texts of images; no addresses."""
    parts: list[str] = []
    for child in token.children or []:
        if child.type in ("text", "code_inline"):
            parts.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif child.type == "image":
            parts.append(child.content)
        elif child.type == "html_inline" and child.content.lower().startswith("<br"):
            parts.append("\n")
    return "".join(parts)


def _html(content: str) -> list[Block]:
    """An HTML block inside Markdown: its own structure where it has one, nothing for comments."""
    bare = _COMMENT.sub("", content)
    if not _TAG.sub("", bare).strip():
        return []
    from services.ingestor.parsing.html_blocks import fragment_blocks

    return fragment_blocks(bare)
