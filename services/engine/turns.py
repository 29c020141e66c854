"""Who may use the engine next. qdrant-edge keeps the interpreter to itself during every call, so that long work is
cut into short turns and queries are served between them."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

#: Points per turn: reading 50 points of a kilobyte of text and 384 dimensions takes 15 ms, writing them 5 ms.
POINTS_PER_TURN = 50

#: How long a writer leaves the loop idle between turns. grpc passes calls over from its own thread, which needs this
#: gap to get the interpreter; a bare `sleep(0)` lets a queued query wait for several turns.
GAP_S = 0.0005

T = TypeVar("T")


def slices(entries: Sequence[T], size: int = POINTS_PER_TURN) -> Iterator[Sequence[T]]:
    for start in range(0, len(entries), size):
        yield entries[start : start + size]


class WriteTurns:
    """One writer at a time over all collections, in order of arrival; readers take no lock and wait for one turn."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def writer(self) -> AsyncGenerator[None]:
        """Hold this for one whole update, and call `gap` between its turns."""
        async with self._lock:
            yield

    @staticmethod
    async def gap() -> None:
        await asyncio.sleep(GAP_S)
