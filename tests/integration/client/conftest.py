"""A scripted server and a client of it, with time that passes only when it is slept."""

import pytest
from pergamon.client import AsyncClient

from tests.integration.client.scripted import FakeTime, serving


@pytest.fixture
async def served():
    async with serving() as running:
        yield running


@pytest.fixture
def time():
    return FakeTime()


@pytest.fixture
async def client(served, time):
    async with AsyncClient(served.target, api_key="secret", timing=time.timing) as opened:
        yield opened
