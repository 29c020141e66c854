"""One address with an embedding model, a sparse one and a reranker behind it."""

from collections.abc import AsyncIterator

import pytest

from services.inference.cards import ModelKind
from tests.helpers.inference import card
from tests.helpers.tei import Client, Shelf, dense_card, engine_of, served


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    embedding = Shelf(engine_of(dense_card()), engine_of(card(ModelKind.SPARSE, name="tiny-terms")))
    reranking = Shelf(engine_of(card(ModelKind.RERANKER, name="tiny-judge")))
    async with served(embedding=embedding, reranking=reranking) as opened:
        yield opened
