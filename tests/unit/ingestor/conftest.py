"""A catalogue and blobs in a folder of the test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.helpers.ingestion import Workshop, workshop


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with workshop(tmp_path) as opened:
        yield opened
