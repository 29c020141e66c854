"""Awaiting several things at once, so that a failure of one leaves none of the others running."""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def all_of(work: Sequence[Coroutine[Any, Any, A]]) -> list[A]:
    """The outcomes in order; the first failure cancels the rest and is raised as it is. One alone costs no task."""
    if len(work) == 1:
        return [await work[0]]
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await settle(tasks)


async def both(first: Coroutine[Any, Any, A], second: Awaitable[B]) -> tuple[A, B]:
    """As `all_of`, for two of different kinds; `first` is on its way before `second` begins."""
    task = asyncio.create_task(first)
    try:
        await asyncio.sleep(0)
        other = await second
        return await task, other
    finally:
        await settle([task])


async def settle(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    """Cancel what still runs and wait for its end; failures nobody asked about are dropped."""
    open_tasks = [task for task in tasks if not task.done()]
    for task in open_tasks:
        task.cancel()
    if open_tasks:
        await asyncio.gather(*open_tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # marks it as seen
