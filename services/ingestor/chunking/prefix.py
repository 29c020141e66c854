"""What is embedded in front of a chunk: `title > section path: `, kept to a share of the model's input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

_MAX_TITLE_CHARS: Final = 160


def document_title(title: str, name: str) -> str:
    """The title, else the file name without folder and ending."""
    shown = " ".join(title.split())
    return shown or PurePosixPath(name.replace("\\", "/")).stem


def chunk_prefix(title: str, section: tuple[str, ...], fits: Callable[[str], bool]) -> str:
    """The longest prefix that `fits`: all titles, then fewer from the middle, then cut ones, then none.

    A heading that only repeats the title is left out.
    """
    titles = [title, *section] if title else list(section)
    if len(titles) > 1 and titles[0].casefold() == titles[1].casefold():
        del titles[1]
    titles = [_shortened(one, _MAX_TITLE_CHARS) for one in titles if one]
    while titles:
        prefix = " > ".join(titles) + ": "
        if fits(prefix):
            return prefix
        if len(titles) > 2:
            del titles[len(titles) // 2]
            continue
        longest = max(range(len(titles)), key=lambda index: len(titles[index]))
        if len(titles[longest]) <= 2:
            del titles[longest]
        else:
            titles[longest] = _shortened(titles[longest], len(titles[longest]) // 2 + 1)
    return ""


def _shortened(title: str, max_chars: int) -> str:
    return title if len(title) <= max_chars else title[: max_chars - 1].rstrip() + "…"
