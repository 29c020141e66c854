# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
"""The main content of a web page: what trafilatura keeps decides which parts of the page's own tree are boilerplate."""

import copy
import re
from typing import Any

from services.domain.blocks import Block
from services.ingestor.parsing.html_blocks import tree_blocks

_BOILERPLATE = ("nav", "footer", "aside")
_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary"})
_NAMES = re.compile(
    r"\b(?:nav(?:bar|igation)?|menu|footer|sidebar|breadcrumbs?|cookie\w*|consent|share\w*|social\w*|related|"
    r"advert\w*|banner|pagination|skip-link|newsletter)\b",
    re.I,
)
_MIN_KEPT = 0.4


def without_boilerplate(root: Any) -> list[Block] | None:
    """Blocks of the page without navigation and the like; None when there is none, or when much would be lost."""
    body = root.find("body")
    if body is None or not _has_boilerplate(body):
        return None
    pruned = copy.deepcopy(body)
    for element in list(pruned.iter()):
        if isinstance(element.tag, str) and _is_boilerplate(element) and element.getparent() is not None:
            _drop(element)
    main = _main_text(root)
    blocks = tree_blocks(pruned)
    kept = sum(len(block.text) for block in blocks)
    all_chars = sum(len(block.text) for block in tree_blocks(body))
    return blocks if kept >= _MIN_KEPT * all_chars or kept >= len(main) > 200 else None


def _main_text(root: Any) -> str:
    """What trafilatura takes for the main content; empty when it finds none."""
    import trafilatura

    return trafilatura.extract(copy.deepcopy(root), favor_recall=True, include_comments=False, deduplicate=False) or ""


def _has_boilerplate(body: Any) -> bool:
    return any(isinstance(element.tag, str) and _is_boilerplate(element) for element in body.iter())


def _is_boilerplate(element: Any) -> bool:
    if element.tag in ("html", "body", "main", "article", "table", "tr", "td", "h1"):
        return False
    if element.tag in _BOILERPLATE or element.get("role") in _ROLES:
        return True
    if element.tag not in ("div", "ul", "ol", "section", "header"):
        return False
    names = f"{element.get('id') or ''} {element.get('class') or ''}".replace("_", "-")
    return bool(_NAMES.search(names)) and _link_share(element) > 0.5


def _link_share(element: Any) -> float:
    total = len("".join(element.itertext()).strip())
    linked = sum(len("".join(link.itertext()).strip()) for link in element.iter("a"))
    return linked / total if total else 1.0


def _drop(element: Any) -> None:
    """Remove an element and keep the text that follows it."""
    parent, tail = element.getparent(), element.tail or ""
    before = element.getprevious()
    if before is not None:
        before.tail = (before.tail or "") + tail
    else:
        parent.text = (parent.text or "") + tail
    parent.remove(element)
