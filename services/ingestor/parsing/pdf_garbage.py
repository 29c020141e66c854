# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
"""Text layers that are no text: codes of glyphs instead of characters."""

import re
from typing import Any

from services.ingestor.parsing.pdf_text import PageText

_CODES = re.compile(r"\(cid:\d+\)|/[GCg]\d{1,3}(?=/|\b)")
_BLANKS = re.compile(r"\s")
_WRITTEN = re.compile(r"[^\W_]")
#: Replacement characters, controls, private use.
_UNDEFINED = re.compile("[\ufffd\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\U000f0000-\U0010ffff]")
_MIN_CHARS = 4
_LOW_LETTERS = 0.45


def is_garbage(page: Any, text: PageText) -> bool:
    """Whether what the layer says cannot be what the page shows: undefined characters, or symbols out of a font
    without a map to Unicode."""
    shown = "".join(f.text for group in text.groups for f in group)
    chars = len(shown) - len(_BLANKS.findall(shown))
    if chars < _MIN_CHARS:
        return False
    undefined = len(_UNDEFINED.findall(shown))
    coded = sum(map(len, _CODES.findall(shown)))
    if undefined > 0.25 * chars or coded > 0.25 * chars:
        return True
    written = len(_WRITTEN.findall(shown))
    suspicious = written < _LOW_LETTERS * chars or _mixes_scripts(shown)
    return suspicious and _has_unmapped_font(page)


def _mixes_scripts(shown: str) -> bool:
    """Words of letters with symbols inside them throughout: a shifted alphabet."""
    words = [w for w in shown.split() if len(w) >= 4]
    odd = sum(1 for w in words if re.search(r"\w[\"#$%&*+<=>?@\[\\\]^`{|}~]\w", w))
    return len(words) > 10 and odd > 0.4 * len(words)


def _has_unmapped_font(page: Any) -> bool:
    document = page.parent
    for font in page.get_fonts(full=True):
        xref, _, kind, _, _, encoding = font[:6]
        if document.xref_get_key(xref, "ToUnicode")[0] != "null" or (kind == "Type3" and encoding):
            continue
        if encoding in ("", "Identity-H", "Identity-V", None):
            return True
    return False
