"""Where each block lies in the document's text."""

from collections.abc import Iterable
from dataclasses import replace

from services.domain.blocks import BLOCK_SEPARATOR, Block, ParsedPart


def place(parts: Iterable[ParsedPart]) -> tuple[Block, ...]:
    """All blocks in order, `start` and `end` set: the document's text is their texts joined by BLOCK_SEPARATOR."""
    placed: list[Block] = []
    at = 0
    for part in parts:
        for block in part.blocks:
            placed.append(replace(block, start=at, end=at + len(block.text)))
            at += len(block.text) + len(BLOCK_SEPARATOR)
    return tuple(placed)
