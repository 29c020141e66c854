"""The stored form of a parse: one gzipped JSON blob a stretch of the document.

Worker processes write and read this form, so that blocks never cross the event loop of the server.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from services.domain.blocks import (
    BLOCK_SEPARATOR,
    Block,
    BlockKind,
    BoundingBox,
    PageRoute,
    ParsedPart,
    ParseWarning,
)

_FORMAT = 1


def encode_part(part: ParsedPart) -> bytes:
    content = {
        "format": _FORMAT,
        "pages": [part.first_page, part.last_page],
        "routes": [route.value for route in part.routes],
        "warnings": [[w.code, w.message, w.page] for w in part.warnings],
        "blocks": [_block_out(block) for block in part.blocks],
    }
    return gzip.compress(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(), 3, mtime=0)


def decode_part(data: bytes) -> ParsedPart:
    """Raises ValueError for a form of another version."""
    content: dict[str, Any] = json.loads(gzip.decompress(data))
    if content.get("format") != _FORMAT:
        raise ValueError(f"stored parse has format {content.get('format')}, expected {_FORMAT}")
    first, last = content["pages"]
    return ParsedPart(
        blocks=tuple(_block_in(entry) for entry in content["blocks"]),
        first_page=first,
        last_page=last,
        routes=tuple(PageRoute(route) for route in content["routes"]),
        warnings=tuple(ParseWarning(code=c, message=m, page=p) for c, m, p in content["warnings"]),
    )


def placed(blocks: Iterable[Block], start: int = 0) -> Iterator[Block]:
    """The blocks with their character ranges in the document's text: block texts joined by BLOCK_SEPARATOR."""
    for block in blocks:
        end = start + len(block.text)
        yield replace(block, start=start, end=end)
        start = end + len(BLOCK_SEPARATOR)


def _block_out(block: Block) -> dict[str, Any]:
    out: dict[str, Any] = {"k": block.kind.value, "t": block.text}
    if block.level:
        out["l"] = block.level
    if block.page is not None:
        out["p"] = block.page
    if block.box is not None:
        box = block.box
        out["b"] = [box.page, *(round(v, 2) for v in (box.x0, box.y0, box.x1, box.y1))]
    if block.rows:
        out["r"], out["h"] = block.rows, block.header_rows
    if block.code_language:
        out["c"] = block.code_language
    return out


def _block_in(entry: dict[str, Any]) -> Block:
    box: list[Any] | None = entry.get("b")
    return Block(
        kind=BlockKind(entry["k"]),
        text=entry["t"],
        level=entry.get("l", 0),
        page=entry.get("p"),
        box=BoundingBox(page=box[0], x0=box[1], y0=box[2], x1=box[3], y1=box[4]) if box else None,
        rows=tuple(tuple(row) for row in entry.get("r", ())),
        header_rows=entry.get("h", 0),
        code_language=entry.get("c", ""),
    )
