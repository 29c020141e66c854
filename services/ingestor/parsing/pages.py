"""A parsed page: its blocks, the path it took, what a reader should know of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from services.domain.blocks import Block, BlockKind, BoundingBox, PageRoute, ParseWarning
from services.ingestor.parsing.fragments import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParse:
    blocks: tuple[Block, ...]
    route: PageRoute
    warnings: tuple[ParseWarning, ...] = ()

    def with_blocks(self, more: Sequence[Block]) -> "PageParse":
        if not more:
            return self
        route = PageRoute.TEXT if self.route is PageRoute.EMPTY else self.route
        return replace(self, blocks=(*self.blocks, *more), route=route)


def box_of(lines: Sequence[Line], number: int) -> BoundingBox:
    places = [f.place for line in lines for f in line.fragments]
    return BoundingBox(
        page=number,
        x0=min(p[0] for p in places),
        y0=min(p[1] for p in places),
        x1=max(p[2] for p in places),
        y1=max(p[3] for p in places),
    )


def joined_lists(blocks: Sequence[Block]) -> list[Block]:
    """Neighbouring items of a list as one LIST block."""
    joined: list[Block] = []
    for block in blocks:
        if (
            joined
            and block.kind is BlockKind.LIST
            and joined[-1].kind is BlockKind.LIST
            and block.page == joined[-1].page
        ):
            joined[-1] = replace(
                joined[-1], text=f"{joined[-1].text}\n{block.text}", box=_union(joined[-1].box, block.box)
            )
        else:
            joined.append(block)
    return joined


def _union(one: BoundingBox | None, other: BoundingBox | None) -> BoundingBox | None:
    if one is None or other is None:
        return one or other
    return BoundingBox(
        page=one.page,
        x0=min(one.x0, other.x0),
        y0=min(one.y0, other.y0),
        x1=max(one.x1, other.x1),
        y1=max(one.y1, other.y1),
    )
