"""A catalogue and blobs in a folder of the test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.helpers.ingestion import Workshop, migrated_catalog, workshop


@pytest.fixture(scope="session")
def catalog_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return migrated_catalog(tmp_path_factory.mktemp("catalog"))


@pytest.fixture
async def shop(tmp_path: Path, catalog_template: Path) -> AsyncIterator[Workshop]:
    async with workshop(tmp_path, catalog_template) as opened:
        yield opened
