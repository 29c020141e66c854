"""A model in memory: who uses it, and how it leaves."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from services.inference.engine import InferenceEngine


class LoadedModel:
    """Use it on the event loop of its engine.

    `kept`: it stays until it is unloaded by name; others may have to make room. `used` is greater for a model that was
    asked for later.
    """

    def __init__(self, engine: InferenceEngine, *, kept: bool) -> None:
        self.engine = engine
        self.kept = kept
        self.used = 0
        self._users = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def in_use(self) -> bool:
        return self._users > 0

    @contextmanager
    def held(self) -> Generator[None]:
        """Until the end of the block the model is not closed, unless it takes longer than `retire` waits."""
        self._users += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._idle.set()

    async def retire(self, *, patience_s: float) -> None:
        """Close the engine when nobody uses it any more, but after `patience_s` whoever does: their work then ends with
        `ShuttingDown`. Nobody new may be given the model meanwhile."""
        try:
            async with asyncio.timeout(patience_s):
                await self._idle.wait()
        except TimeoutError:
            pass
        finally:
            await self.engine.aclose()
