"""Parses a file and hands over its blocks."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from services.domain.blocks import Block
from services.ingestor.parsing import ParseOptions, open_source, place

Parse: TypeAlias = Callable[..., tuple[Block, ...]]


@pytest.fixture
def parse() -> Parse:
    def run(path: Path, **options: object) -> tuple[Block, ...]:
        source = open_source(path, ParseOptions(**{"filename": path.name, "ocr": False, **options}))  # type: ignore[arg-type]
        try:
            return place(source.parts())
        finally:
            source.close()

    return run
