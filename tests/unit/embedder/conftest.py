"""Tiny models, written once."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.unit.embedder.servers import Serving, install, serving


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("embedder") / "models")


@pytest.fixture
async def embedder(models_dir: Path) -> AsyncGenerator[Serving]:
    async with serving(models_dir) as started:
        yield started
