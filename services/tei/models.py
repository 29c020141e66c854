"""The models behind the tei.v1 services of one port, and which of them a call gets: its messages name none."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from services.common.errors import NotFound
from services.inference.cards import ModelCard
from services.inference.engine import InferenceEngine
from services.inference.errors import ModelNotAvailable, WrongModelKind
from services.inference.types import Output


class Models(Protocol):
    """The models of one app. An empty name is its default."""

    def cards(self) -> list[tuple[ModelCard, bool]]: ...

    def card(self, name: str) -> ModelCard: ...

    async def engine(self, name: str) -> InferenceEngine: ...


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

    async def engine_giving(self, output: Output) -> InferenceEngine:
        """Of the first configured model that gives `output`, or else of the first installed one, by name.

        Errors: WRONG_MODEL_KIND where there is none, and those of loading it.
        """
        for name in self.names:
            if output in self.models.card(name).outputs:
                return await self.models.engine(name)
        if found := self._found.get(output):
            try:
                return await self.models.engine(found)
            except (NotFound, ModelNotAvailable):  # it was removed: look again
                del self._found[output]
        for card, _ in await asyncio.to_thread(self.models.cards):
            if output in card.outputs:
                self._found[output] = card.name
                return await self.models.engine(card.name)
        raise WrongModelKind(
            f"this server has no model that gives {output}: install or configure one",
            metadata={"output": str(output)},
        )


class Offers:
    """The offers of the apps of one port, put here while they are built and looked at by every call."""

    def __init__(self) -> None:
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
    def compute_type(self) -> str:
        """`gpu` or `cpu`, by the model that was used last; the models of a port are on one kind of device."""
        return "gpu" if self._device.startswith("cuda") else "cpu"

    async def embedder(self, output: Output) -> InferenceEngine:
        """Errors: WRONG_MODEL_KIND where no model of this port gives `output`."""
        if self.embedding is None:
            raise WrongModelKind("this server serves rerankers, and no embedding model: use Rerank, or another address")
        return self._used(await self.embedding.engine_giving(output))

    async def reranker(self) -> tuple[InferenceEngine, int]:
        """The default reranker, and how many texts a call may have. Errors: WRONG_MODEL_KIND where there is none."""
        if self.reranking is None:
            raise WrongModelKind("this server serves embedding models, and no reranker: use Embed, or another address")
        return self._used(await self.reranking.models.engine("")), self.reranking.max_items

    async def default(self) -> InferenceEngine:
        return self._used(await self.main.models.engine(""))

    def _used(self, engine: InferenceEngine) -> InferenceEngine:
        self._device = engine.device
        return engine
