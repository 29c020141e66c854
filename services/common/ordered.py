"""Answering a stream in its order while several of its requests are in work."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def _weightless(request: object) -> int:
    return 0


async def in_order(
    requests: AsyncIterator[T],
    work: Callable[[T], Awaitable[R]],
    *,
    in_work: int,
    weight: Callable[[T], int] = _weightless,
    max_weight: int = 1,
) -> AsyncIterator[R]:
    """The results of `work` in the order of `requests`, at most `in_work` of them unfinished or unread.

    While those in work weigh `max_weight` or more, together, no other is read: one may go beyond it, however heavy.
    The next request is read only when there is room for it: a slow reader holds up the sender. When the caller stops,
    what is in work is cancelled.
    """
    running: deque[asyncio.Future[R]] = deque()
    weights: deque[int] = deque()
    held = 0
    reading: asyncio.Future[T] | None = None
    ended = False
    try:
        while running or not ended:
            if not ended and reading is None and len(running) < in_work and held < max_weight:
                reading = asyncio.ensure_future(_next(requests))
            waiting: list[asyncio.Future[Any]] = [running[0]] if running else []
            if reading is not None:
                waiting.append(reading)
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if reading is not None and reading.done():
                try:
                    request = reading.result()
                except _Ended:
                    ended = True
                else:
                    weights.append(weight(request))
                    held += weights[-1]
                    running.append(asyncio.ensure_future(work(request)))
                reading = None
            while running and running[0].done():
                yield running.popleft().result()
                held -= weights.popleft()
    finally:
        left: list[asyncio.Future[Any]] = [task for task in (reading, *running) if task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class _Ended(Exception):
    """There are no more requests. Not StopAsyncIteration, which a task cannot carry."""


async def _next(requests: AsyncIterator[T]) -> T:
    try:
        return await anext(requests)
    except StopAsyncIteration:
        raise _Ended from None
