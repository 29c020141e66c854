"""Markdown that its parser reads in quadratic time, or not to its end: found cheaply before it is parsed."""

import re

#: What the parser is told, too: it leaves out, without a word, what is nested more deeply. A list counts twice.
MAX_NESTING = 60
_MAX_OPEN_BRACKETS = 5000
_MAX_OPEN_TAGS = 2000

_BRACKET = re.compile(r"[\[\]]|\n[^\S\n]*\n")
_OPENED = re.compile(r"<!--|<\?|<!\[CDATA\[")
_CLOSED = re.compile(r"-->|\?>|\]\]>")
#: Marks of list items and quotes in a row, and a list item behind so much space that it must be inside many others.
_MARKS_IN_A_ROW = re.compile(rf"^[^\S\n]*(?:(?:[-+*]|\d{{1,9}}[.)])[^\S\n]+|>[^\S\n]?){{{MAX_NESTING // 2}}}", re.M)
_FAR_INDENTED = re.compile(rf"^[^\S\n]{{{MAX_NESTING - 2},}}(?:[-+*]|\d{{1,9}}[.)])[^\S\n]+\S", re.M)


def why_too_hard(text: str) -> str:
    """What makes a text too hard to read as Markdown; empty when nothing does. Takes time linear in the text."""
    if _MARKS_IN_A_ROW.search(text) or _FAR_INDENTED.search(text):
        return f"lists or quotes are nested more than {MAX_NESTING // 2} deep"
    if len(_OPENED.findall(text)) - len(_CLOSED.findall(text)) > _MAX_OPEN_TAGS:
        return f"more than {_MAX_OPEN_TAGS} comments are begun and not ended"
    if _most_open_brackets(text) > _MAX_OPEN_BRACKETS:
        return f"more than {_MAX_OPEN_BRACKETS} brackets are open in one paragraph"
    return ""


def _most_open_brackets(text: str) -> int:
    opened = most = 0
    for found in _BRACKET.finditer(text):
        match found[0]:
            case "[":
                opened += 1
                most = max(most, opened)
            case "]":
                opened = max(0, opened - 1)
            case _:
                opened = 0
    return most
