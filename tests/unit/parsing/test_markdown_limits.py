import time
from pathlib import Path

import pytest

from services.domain.blocks import ParsedPart
from services.ingestor.parsing import ParseOptions, open_source
from services.ingestor.parsing.markdown_limits import why_too_hard


def read(tmp_path: Path, text: str) -> ParsedPart:
    path = tmp_path / "a.md"
    path.write_text(text)
    source = open_source(path, ParseOptions(filename="a.md"))
    try:
        return next(iter(source.parts()))
    finally:
        source.close()


def nested_list(levels: int, step: int = 2) -> str:
    return "\n".join(" " * step * level + f"- word{level}" for level in range(levels))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000, "![" * 50_000, "<!-- " * 20_000, "<![CDATA[ " * 20_000, "<? " * 20_000,
        nested_list(1500), "- " * 3000 + "x", ">" * 3000 + " x", "1. " * 3000 + "x",
    ],
)  # fmt: skip
def test_markdown_when_hostile_then_is_read_quickly_as_text_with_a_warning(tmp_path: Path, text: str) -> None:
    started = time.process_time()
    part = read(tmp_path, "A harmless beginning.\n\n" + text)
    assert time.process_time() - started < 5  # unguarded: up to a minute and more
    assert [warning.code for warning in part.warnings] == ["READ_AS_TEXT"]
    assert part.blocks[0].text == "A harmless beginning."
    assert "".join(text.split()) in "".join("".join(block.text for block in part.blocks).split())


@pytest.mark.parametrize("levels", [5, 20, 29, 30, 31, 60])
def test_list_when_nested_then_no_level_is_lost(tmp_path: Path, levels: int) -> None:
    text = " ".join(block.text for block in read(tmp_path, nested_list(levels)).blocks)
    assert [word for word in (f"word{level}" for level in range(levels)) if word not in text] == []


@pytest.mark.parametrize(
    "text",
    [
        "* see [the page](a.html) and [b]\n" * 20_000,
        "| [a](b) | *c* |\n|---|---|\n" + "| [x](y) | **z** |\n" * 20_000,
        "```\n" + "\x1b[0m a log line\n\n" * 20_000 + "```\n",
        "<!-- a comment -->\n\n" * 5000,
        nested_list(12, step=4),
        "> " * 10 + "a quotation in an answer to an answer",
        "- [ ] open\n- [x] done\n" * 5000,
        "* * *\n\n" * 1000,
    ],
)  # fmt: skip
def test_markdown_when_long_but_ordinary_then_is_read_as_markdown(text: str) -> None:
    assert why_too_hard(text) == ""
