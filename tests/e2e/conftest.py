"""One all-in-one for the whole suite: two tenants, a small model, short waits."""

from collections.abc import AsyncIterator, Iterator

import pytest
from pergamon.client import AsyncClient

from tests.helpers.product import Product, running_product


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with running_product(tmp_path_factory.mktemp("product")) as running:
        yield running


@pytest.fixture
async def client(product: Product) -> AsyncIterator[AsyncClient]:
    async with product.client("acme") as acme:
        yield acme


@pytest.fixture
async def stranger(product: Product) -> AsyncIterator[AsyncClient]:
    """The admin of the other tenant."""
    async with product.client("globex") as globex:
        yield globex
