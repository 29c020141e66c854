"""The examples are what a reader would copy: short, correct by their types, and each says how to run it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
_MOST_LINES = 40


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_when_read_then_it_is_short_and_says_how_to_run_it(example: Path):
    text = example.read_text(encoding="utf-8")
    assert len(text.splitlines()) < _MOST_LINES
    assert f"python examples/{example.name} [HOST:PORT" in (ast.get_docstring(ast.parse(text)) or "")


def test_examples_when_type_checked_then_there_are_no_findings():
    assert len(EXAMPLES) >= 4
    command = [sys.executable, "-m", "basedpyright", "--warnings", *map(str, EXAMPLES)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
