"""The models behind the tei.v1 services of one port, and which of them a call gets: its messages name none."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from services.common.errors import NotFound
from services.inference.cards import ModelCard
from services.inference.engine import InferenceEngine
from services.inference.errors import ModelNotAvailable, WrongModelKind
from services.inference.types import Output


class Models(Protocol):
    """The models of one app. An empty name is its default; a model stays in memory for as long as it is used."""

    def cards(self) -> list[tuple[ModelCard, bool]]: ...

    def card(self, name: str) -> ModelCard: ...

    def using(self, name: str) -> AbstractAsyncContextManager[InferenceEngine]: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Offer:
    """What one app puts behind the services: its models, those that are configured by `names`, in their order.

    `max_items` texts of one call; `ready` says whether its models can work now.
    """

    models: Models
    names: tuple[str, ...]
    max_items: int
    ready: Callable[[], Awaitable[bool]]
    _found: dict[Output, str] = field(default_factory=dict[Output, str], init=False)

    async def name_giving(self, output: Output) -> str:
        """The first configured model that gives `output`, or else the first installed one.

        Errors: WRONG_MODEL_KIND where there is none.
        """
        for name in self.names:
            if output in self.models.card(name).outputs:
                return name
        if found := self._found.get(output):
            try:
                return self.models.card(found).name
            except (NotFound, ModelNotAvailable):  # it was removed: look again
                del self._found[output]
        for card, _ in await asyncio.to_thread(self.models.cards):
            if output in card.outputs:
                return self._found.setdefault(output, card.name)
        raise WrongModelKind(
            f"this server has no model that gives {output}: install or configure one",
            metadata={"output": str(output)},
        )


class Offers:
    """The offers of the apps of one port, put here while they are built and looked at by every call.

    `max_reply_bytes` is the largest message that the server sends.
    """

    def __init__(self, *, max_reply_bytes: int = 64 << 20) -> None:
        self.max_reply_bytes = max_reply_bytes
        self.embedding: Offer | None = None
        self.reranking: Offer | None = None
        self._device = ""

    @property
    def main(self) -> Offer:
        """What Info and Tokenize speak of: the default embedding model, or the default reranker where it is alone."""
        offer = self.embedding or self.reranking
        if offer is None:
            raise WrongModelKind("this server has no models")
        return offer

    @property
    def judging(self) -> Offer:
        """Errors: WRONG_MODEL_KIND where there is no reranker."""
        if self.reranking is None:
            raise WrongModelKind("this server serves embedding models, and no reranker: use Embed, or another address")
        return self.reranking

    @property
    def compute_type(self) -> str:
        """`gpu` or `cpu`, by the model that was used last; the models of a port are on one kind of device."""
        return "gpu" if self._device.startswith("cuda") else "cpu"

    @asynccontextmanager
    async def embedder(self, output: Output) -> AsyncGenerator[InferenceEngine]:
        """A model that gives `output`. Errors: WRONG_MODEL_KIND where there is none, and those of loading it."""
        if self.embedding is None:
            raise WrongModelKind("this server serves rerankers, and no embedding model: use Rerank, or another address")
        async with self._using(self.embedding, await self.embedding.name_giving(output)) as engine:
            yield engine

    def reranker(self) -> AbstractAsyncContextManager[InferenceEngine]:
        """The default one. Errors: WRONG_MODEL_KIND where there is none, and those of loading it."""
        return self._using(self.judging, "")

    def default(self) -> AbstractAsyncContextManager[InferenceEngine]:
        return self._using(self.main, "")

    @asynccontextmanager
    async def _using(self, offer: Offer, name: str) -> AsyncGenerator[InferenceEngine]:
        async with offer.models.using(name) as engine:
            self._device = engine.device
            yield engine
