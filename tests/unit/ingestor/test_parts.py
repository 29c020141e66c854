"""The stored form of a parse keeps everything, and places blocks in the document's text."""

import gzip
import json

import pytest

from services.domain.blocks import (
    BLOCK_SEPARATOR,
    Block,
    BlockKind,
    BoundingBox,
    PageRoute,
    ParsedPart,
    ParseWarning,
)
from services.ingestor.parts import decode_part, encode_part, placed

PART = ParsedPart(
    blocks=(
        Block(kind=BlockKind.HEADING, text="标题 Ω", level=2, page=3),
        Block(
            kind=BlockKind.TABLE,
            text="a | b\n1 | 2",
            page=4,
            box=BoundingBox(page=4, x0=1.25, y0=2, x1=3, y1=4),
            rows=(("a", "b"), ("1", "2")),
            header_rows=1,
        ),
        Block(kind=BlockKind.CODE, text="x = 1\n", code_language="python"),
    ),
    first_page=3,
    last_page=4,
    routes=(PageRoute.TEXT, PageRoute.TABLE),
    warnings=(ParseWarning(code="LOW_OCR_CONFIDENCE", message="m", page=4),),
)


def test_part_when_stored_and_read_then_it_is_the_same() -> None:
    assert decode_part(encode_part(PART)) == PART


def test_part_when_stored_twice_then_the_bytes_are_equal() -> None:
    assert encode_part(PART) == encode_part(PART)


def test_part_when_it_has_another_format_then_it_is_refused() -> None:
    with pytest.raises(ValueError, match="format 99"):
        decode_part(gzip.compress(json.dumps({"format": 99}).encode()))


def test_placed_when_blocks_are_joined_then_each_range_is_its_text() -> None:
    blocks = list(placed(PART.blocks, start=0))
    text = BLOCK_SEPARATOR.join(block.text for block in PART.blocks)
    assert [text[b.start : b.end] for b in blocks] == [b.text for b in PART.blocks]
