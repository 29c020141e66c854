"""The document as one text: where each block lies in it, which section it belongs to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.domain.blocks import BLOCK_SEPARATOR, Block, BlockKind, BoundingBox

_MAX_BOXES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Blocks `first` to `end` (exclusive) under one heading; `path` holds the titles from the top."""

    path: tuple[str, ...]
    first: int
    end: int


class Layout:
    """Blocks laid out in the document's text. Positions here count from 0; `base` is where the text itself starts."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = [block for block in blocks if block.text.strip()]
        self.text = BLOCK_SEPARATOR.join(block.text for block in blocks)
        self.base = blocks[0].start if blocks and blocks[0].end - blocks[0].start == len(blocks[0].text) else 0
        self.starts: list[int] = []
        at = 0
        for block in blocks:
            if block.text.strip():
                self.starts.append(at)
            at += len(block.text) + len(BLOCK_SEPARATOR)

    def end_of(self, index: int) -> int:
        return self.starts[index] + len(self.blocks[index].text)

    def sections(self) -> Iterator[Section]:
        """Sections in order. Headings without text of their own go with the deeper section that follows."""
        stack: list[tuple[int, str]] = []
        first = 0
        for index, block in enumerate(self.blocks):
            if block.kind is not BlockKind.HEADING:
                continue
            level = max(1, block.level)
            bare = index > 0 and self.blocks[index - 1].kind is BlockKind.HEADING
            deeper = bool(stack) and stack[-1][0] < level
            if index > first and not (bare and deeper):
                yield Section(path=tuple(title for _, title in stack), first=first, end=index)
                first = index
            while stack and stack[-1][0] >= level:
                stack.pop()
            stack.append((level, " ".join(block.text.split())))
        if first < len(self.blocks):
            yield Section(path=tuple(title for _, title in stack), first=first, end=len(self.blocks))

    def covering(self, start: int, end: int) -> list[Block]:
        """The blocks that have a character in `start` to `end`."""
        index = max(0, bisect_right(self.starts, start) - 1)
        found: list[Block] = []
        while index < len(self.blocks) and self.starts[index] < end:
            if self.end_of(index) > start:
                found.append(self.blocks[index])
            index += 1
        return found


def boxes_of(blocks: Sequence[Block]) -> tuple[BoundingBox, ...]:
    """The places of `blocks`: each its own box, or one box a page when that would be more than 16."""
    boxes = list(dict.fromkeys(block.box for block in blocks if block.box is not None))
    if len(boxes) <= _MAX_BOXES:
        return tuple(boxes)
    pages: dict[int, BoundingBox] = {}
    for box in boxes:
        pages[box.page] = _union(pages.get(box.page, box), box)
    return tuple(pages.values())[:_MAX_BOXES]


def _union(one: BoundingBox, other: BoundingBox) -> BoundingBox:
    return BoundingBox(
        page=one.page,
        x0=min(one.x0, other.x0),
        y0=min(one.y0, other.y0),
        x1=max(one.x1, other.x1),
        y1=max(one.y1, other.y1),
    )
