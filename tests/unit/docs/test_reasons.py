"""The table of reasons is complete: what is used is declared, what is documented exists, what is declared happens."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from scripts.generate_api_docs import load_protos
from services.common.errors import Reason

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "services" / "common" / "errors.py"

#: Declared for clients, and never raised by a service: why.
NOT_RAISED = {
    "CANCELLED": "the caller is gone, so that nobody is there to be told",
}
#: Capitals in proto comments that are neither reasons nor values of an enum.
OTHER_CAPITALS = {
    "GUESSED_ENCODING": "code of a DocumentWarning",
    "TABLE": "route of a page",
    "EMPTY": "route of a page",
    "TEXT": "route of a page",
    "BM25": "ranking function",
    "IEEE": "standard",
    "SPDX": "standard",
    "UTF": "encoding",
    "SPLADE": "kind of model",
    "MERGED": "value of Combination",
}


@cache
def python_files() -> tuple[tuple[Path, ast.Module], ...]:
    paths = sorted((ROOT / "services").rglob("*.py"))
    return tuple((path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths)


def reasons_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason":
            yield node.attr


def raised_in(tree: ast.AST) -> Iterator[str]:
    """Reasons given to a call, or to a class of errors; those that are only compared or listed do not count."""
    for node in ast.walk(tree):
        given: list[ast.AST] = []
        if isinstance(node, ast.Call):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.ClassDef):
            given = [one.value for one in node.body if isinstance(one, ast.Assign | ast.AnnAssign) and one.value]
        elif isinstance(node, ast.Assign | ast.Return):
            given = [node.value] if node.value else []
        for value in given:
            if isinstance(value, ast.Attribute | ast.IfExp):
                yield from (name for name in reasons_in(value) if not _is_part_of_name(value))


@cache
def raised_anywhere() -> frozenset[str]:
    return frozenset(name for _, tree in python_files() for name in raised_in(tree))


def _is_part_of_name(value: ast.AST) -> bool:
    """`Reason.X.name`, as in the label of a metric."""
    return isinstance(value, ast.Attribute) and not isinstance(value.value, ast.Name)


def capitals(comment: str) -> set[str]:
    return set(re.findall(r"(?<![\w.`])[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)*(?![\w])", comment))


def test_reasons_when_used_in_code_then_declared():
    used = {(path.relative_to(ROOT), name) for path, tree in python_files() for name in reasons_in(tree)}
    assert used
    assert {(path, name) for path, name in used if name not in Reason.__members__} == set()


@pytest.mark.parametrize("reason", list(Reason), ids=lambda reason: reason.name)
def test_reason_when_declared_then_some_code_raises_it(reason: Reason):
    assert (reason.name in raised_anywhere()) != (reason.name in NOT_RAISED)


def test_reasons_when_named_in_proto_comments_then_declared():
    files = load_protos()
    values = {one.name for file in files for entity in file.entities if entity.is_enum for one in entity.fields}
    short = {"_".join(parts[start:]) for name in values if (parts := name.split("_")) for start in range(len(parts))}
    known = Reason.__members__.keys() | values | short | OTHER_CAPITALS.keys()
    unknown = {
        (where, word)
        for file in files
        for where, comment in file.comments()
        for word in capitals(comment)
        if len(word) > 3 and word not in known
    }
    assert unknown == set()


def test_reasons_when_promised_after_errors_then_declared():
    """Stricter than the test above where a list of errors begins: there a value of an enum is no excuse."""
    promised: set[tuple[str, str]] = set()
    for file in load_protos():
        for where, comment in file.comments():
            for sentence in re.findall(r"Errors(?: common to all methods)?: ([^.]*)\.", comment):
                listed = re.sub(r"\([^)]*\)|with RetryInfo", "", sentence)
                promised |= {(where, word) for word in re.findall(r"\b[A-Z][A-Z_]{3,}\b", listed)}
    assert len(promised) > 40
    assert {(where, word) for where, word in promised if word not in Reason.__members__} == set()


def test_reasons_when_declared_then_meaning_is_a_sentence():
    odd = {reason.name for reason in Reason if not reason.meaning.endswith(".") or reason.meaning[0].islower()}
    assert odd == set()
