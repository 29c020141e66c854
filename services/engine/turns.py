"""Who may use the engine next. qdrant-edge keeps the interpreter to itself during every call, so that long work is
cut into short turns and queries are served between them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

#: How long a turn should take: what a query that comes during an update waits for, give or take.
TURN_S = 0.004

#: Entries of the first turn of an update. Turns grow and shrink with the time that the ones before took: an entry costs
#: 0.05 ms or 1 ms, depending on the work, the point and what else the machine does.
FIRST_ENTRIES = 8
MAX_ENTRIES = 500
_MAX_GROWTH = 2.0

#: How long a writer leaves the loop idle between turns. grpc passes calls over from its own thread, which needs this
#: gap to get the interpreter; a bare `sleep(0)` lets a queued query wait for several turns.
GAP_S = 0.0005

T = TypeVar("T")


class Turns:
    """One writer at a time over all collections, in order of arrival; readers take no lock and wait for one turn."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = asyncio.Lock()
        self._clock = clock
        self._last_used = clock()

    @property
    def quiet_s(self) -> float:
        """Seconds since anything was read or written; 0 while an update waits or runs."""
        return 0.0 if self._lock.locked() else self._clock() - self._last_used

    @asynccontextmanager
    async def writer(self) -> AsyncGenerator[None]:
        """Hold this for one whole update."""
        async with self._lock:
            yield
        self._last_used = self._clock()

    @contextmanager
    def reader(self) -> Generator[None]:
        """Wrap every read in this: long work waits for a moment without any."""
        yield
        self._last_used = self._clock()

    async def each(self, entries: Sequence[T], work: Callable[[Sequence[T]], None]) -> None:
        """Do `work` on all entries, in order, a part a turn. The caller holds `writer`."""
        start, size = 0, FIRST_ENTRIES
        while start < len(entries):
            part = entries[start : start + size]
            begun = self._clock()
            work(part)
            start += len(part)
            size = next_size(len(part), self._clock() - begun)
            await self.gap()

    @staticmethod
    async def gap() -> None:
        """Let the queries go first that came during a turn."""
        await asyncio.sleep(GAP_S)


def next_size(entries: int, took_s: float) -> int:
    """Entries of the turn after one of `entries` that took `took_s`."""
    growth = min(TURN_S / took_s, _MAX_GROWTH) if took_s > 0 else _MAX_GROWTH
    return max(1, min(int(entries * growth), MAX_ENTRIES))
