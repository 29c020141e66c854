"""Where the functions and classes of a program begin."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Final

_MAX_PARSED_CHARS: Final = 1_000_000
_PYTHON: Final = frozenset({"python", "py", "python3", "pyi"})
_CLOSING: Final = re.compile(r"[})\]]|end\b|else\b|elif\b|except\b|finally\b|catch\b|#endif\b|#else\b|\{")


def unit_starts(text: str, language: str, is_large: Callable[[int, int], bool]) -> list[int]:
    """Offsets in `text` where a unit begins, ascending: functions, classes, and what stands between them.

    Decorators and the comments right above belong to their unit. The methods of a class count as units when the class
    is large (`is_large(start, end)`). Python is parsed; programs that do not parse and other languages go by lines:
    a unit begins at a line without indentation that follows a blank line or a closing bracket.
    """
    if language.lower().lstrip(".") in _PYTHON and len(text) <= _MAX_PARSED_CHARS:
        tree = _parsed(text)
        if tree is not None:
            return sorted(set(_python_units(tree.body, _Lines(text), is_large)))
    return list(_units_by_lines(text))


class _Lines:
    """Lines of a text as the Python parser counts them, with their offsets."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def with_comments_above(self, number: int) -> int:
        """The 0-based line where the comments right above 0-based line `number` begin."""
        while number > 0 and self.lines[number - 1].lstrip().startswith("#"):
            number -= 1
        return number


def _parsed(text: str) -> ast.Module | None:
    # Other line ends would make the parser's line numbers differ from ours.
    if "\r" in text or "\f" in text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _python_units(body: list[ast.stmt], lines: _Lines, is_large: Callable[[int, int], bool]) -> Iterator[int]:
    after_unit = False
    for node in body:
        is_unit = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if is_unit or after_unit:
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
            yield lines.starts[lines.with_comments_above(first)]
        if not isinstance(node, ast.ClassDef):
            pass
        elif is_large(lines.starts[node.lineno - 1], lines.starts[node.end_lineno or 0]):
            yield from _python_units(node.body, lines, is_large)
        after_unit = is_unit


def _units_by_lines(text: str) -> Iterator[int]:
    at = 0
    before = ""
    for line in text.split("\n"):
        opens = bool(line) and not line[0].isspace() and _CLOSING.match(line) is None
        if opens and at and (not before.strip() or before.startswith(("}", "end"))):
            yield at
        before = line
        at += len(line) + 1
