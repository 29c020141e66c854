"""A real engine process for the session, and a workshop over it for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.common.metrics import Metrics
from services.index.connection import IndexConnection
from services.index.reader import IndexReader
from services.index.writer import IndexWriter
from services.ingestor.pipeline import Pipeline
from services.ingestor.sparse_rewrite import SparseRewrite
from tests.contract.index.engine import running_engine
from tests.helpers.ingestion import Plant, migrated_catalog, workshop


@pytest.fixture(scope="session")
def engine_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_engine(tmp_path_factory.mktemp("engine")) as target:
        yield target


@pytest.fixture(scope="session")
def catalog_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return migrated_catalog(tmp_path_factory.mktemp("catalog"))


@pytest.fixture
async def plant(engine_target: str, tmp_path: Path, catalog_template: Path) -> AsyncIterator[Plant]:
    index = IndexConnection(engine_target)
    writer, reader, metrics = IndexWriter(index), IndexReader(index), Metrics()
    async with workshop(tmp_path, catalog_template) as shop:
        yield Plant(
            shop=shop,
            writer=writer,
            reader=reader,
            pipeline=Pipeline(
                catalog=shop.catalog,
                blobs=shop.blobs,
                index=writer,
                embedder=shop.embedder,
                workers=shop.workers,  # type: ignore[arg-type]
                settings=shop.settings,
                metrics=metrics,
            ),
            metrics=metrics,
            rewrite=SparseRewrite(
                catalog=shop.catalog, reader=reader, writer=writer, embedder=shop.embedder, settings=shop.settings
            ),
        )
    await index.aclose()
