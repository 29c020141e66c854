"""Work for threads in bounded numbers: so much at once, so much waiting, so long, and a refusal beyond."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from services.common.clock import Clock, Deadline
from services.common.errors import Overloaded

T = TypeVar("T")


class Turns:
    """At most `at_once` pieces of work in threads and `waiting` before them, none of which waits beyond `max_wait_s`.

    A caller that goes away frees its turn only when its work has ended: a thread cannot be stopped.
    """

    def __init__(self, clock: Clock, *, at_once: int = 2, waiting: int = 64, max_wait_s: float = 10.0) -> None:
        self._clock = clock
        self._free = asyncio.Semaphore(at_once)
        self._at_once = at_once
        self._waiting = 0
        self._most_waiting = waiting
        self._max_wait_s = max_wait_s
        self._work_s = 0.1
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Callable[[], T], deadline: Deadline) -> T:
        """Raises Overloaded with an estimate of when a turn will be free."""
        if self._waiting >= self._most_waiting:
            raise self._refused()
        self._waiting += 1
        try:
            async with asyncio.timeout(deadline.capped(self._max_wait_s)):
                await self._free.acquire()
        except TimeoutError:
            raise self._refused() from None
        finally:
            self._waiting -= 1
        started = self._clock.monotonic()
        task = asyncio.create_task(asyncio.to_thread(work))
        self._running.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, started))
        return await asyncio.shield(task)

    def _ended(self, task: "asyncio.Task[Any]", started: float) -> None:
        self._running.discard(task)
        self._free.release()
        self._work_s += 0.2 * (self._clock.monotonic() - started - self._work_s)
        if not task.cancelled():
            task.exception()  # seen, also where the caller is gone

    def _refused(self) -> Overloaded:
        retry_after_s = max(0.1, (self._waiting + 1) * self._work_s / self._at_once)
        return Overloaded(
            f"{self._at_once} long texts are in work and {self._waiting} wait: retry in {retry_after_s:.1f} s",
            retry_after_s=retry_after_s,
        )
