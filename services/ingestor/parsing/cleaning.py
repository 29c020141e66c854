"""Text as a reader sees it: NFC, `\\n` line ends, nothing invisible."""

import re
import unicodedata

#: Control characters, byte-order mark, soft hyphen, zero-width space and joiners of layout, direction marks, object and
#: interlinear anchors. ZWNJ and ZWJ stay: they carry meaning in Persian, Indic scripts and emoji.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufff9-\ufffc]"
)
_LINE_ENDS = re.compile("\r\n?|\u2028|\u0085")
_SPACES = re.compile(r"[^\S\n]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """NFC with `\\n` line ends, nothing invisible; form feeds and paragraph separators become blank lines."""
    text = _LINE_ENDS.sub("\n", text).replace("\u2029", "\n\n").replace("\f", "\n\n")
    text = _SURROGATES.sub("\ufffd", _INVISIBLE.sub("", text))
    return unicodedata.normalize("NFC", text)


def squeeze(text: str) -> str:
    """`clean`, runs of blanks as one, none at line ends, at most one empty line in a row."""
    lines = (_SPACES.sub(" ", line).strip() for line in clean(text).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def one_line(text: str) -> str:
    return " ".join(clean(text).split())
