"""Running headers and footers: lines that stand at the same place on page after page."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from services.ingestor.parsing.fragments import Fragment

_ZONE = 0.09
_MIN_PAGES = 4
_NEIGHBOURS = 12
_NUMBER = re.compile(r"^[\W\d_]*\d+[\W\d_]*$|^[ivxlc]+$", re.I)
_EDGE_NUMBER = re.compile(r"^\s*\d{1,4}\b[\s|·•–-]*|[\s|·•–-]*\b\d{1,4}\s*$")
_PAGE_OF = re.compile(
    r"^(?:page|seite|página|pagina|стр(?:аница)?\.?|p\.)\s*\d+(?:\s*(?:of|von|de|di|из|/)\s*\d+)?$", re.I
)


def furniture(pages: Mapping[int, Sequence[Fragment]], heights: Mapping[int, float]) -> dict[int, set[int]]:
    """For each page the ids (`id()`) of its fragments that repeat what earlier pages show at the same place.

    A text goes only where the very same text stood at the same height on an earlier page, and on four pages in the
    neighbourhood: its first appearance stays, so no text is lost to the document. Bare page numbers go likewise.
    """
    places: dict[tuple[str, int], list[tuple[int, Fragment]]] = defaultdict(list)
    for page, fragments in pages.items():
        height = heights[page]
        for fragment in fragments:
            if fragment.place[3] < _ZONE * height or fragment.place[1] > (1 - _ZONE) * height:
                key = (_key(fragment.text), round(fragment.place[1] / 6))
                places[key].append((page, fragment))
    found: dict[int, set[int]] = defaultdict(set)
    for (text, at), here in places.items():
        near = [*here, *places.get((text, at + 1), ()), *places.get((text, at - 1), ())]
        numbers = {page for page, _ in near}
        for page, fragment in here:
            around = {n for n in numbers if abs(n - page) <= _NEIGHBOURS}
            if len(around) >= _MIN_PAGES and (min(around) < page or text == "#"):
                found[page].add(id(fragment))
    return found


def _key(text: str) -> str:
    """The text that repeats: without a page number at its edges; "#" when it is nothing but one."""
    plain = " ".join(text.split())
    if _NUMBER.match(plain) or _PAGE_OF.match(plain):
        return "#" if len(plain) <= 24 else plain
    bare = _EDGE_NUMBER.sub("", plain).strip()
    return bare if len(bare) >= 4 else plain
