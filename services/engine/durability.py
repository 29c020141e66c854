"""When what was written goes to disk. A flush keeps the interpreter while the disk works, and all queries with it."""

import asyncio

from services.engine.store import Collection, Store
from services.engine.turns import Turns

#: The log is synced to disk this often while there are updates. Killing the process loses nothing (the log is in the
#: kernel's hands when an update is acknowledged); a power failure can lose this much.
SYNC_INTERVAL_S = 5.0
#: Segments are flushed, and the log is shortened, when nobody asked for anything for this long: with a busy disk a
#: flush took a second at 100,000 points.
QUIET_S = 2.0
#: ... or when the log is this long, whatever goes on: a start applies it again, at some thousand points a second.
LOG_MAX_BYTES = 384 * 1024 * 1024


class Durability:
    """Syncs logs and flushes segments of one store, in moments when it disturbs nobody."""

    def __init__(self, store: Store, turns: Turns, *, log_max_bytes: int = LOG_MAX_BYTES) -> None:
        self._store = store
        self._turns = turns
        self._log_max_bytes = log_max_bytes

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(SYNC_INTERVAL_S)
            await self.step()

    async def step(self) -> None:
        for collection in self._store.dirty():
            if collection.unsynced:
                await asyncio.to_thread(collection.sync_log)
            if self._may_flush(collection):
                # Then little is left for the flush to wait for.
                await asyncio.to_thread(collection.write_back)
            if self._may_flush(collection):
                async with self._turns.writer():
                    if self._store.has(collection.name):
                        collection.flush()

    def _may_flush(self, collection: Collection) -> bool:
        return self._turns.quiet_s >= QUIET_S or collection.log_bytes() >= self._log_max_bytes
