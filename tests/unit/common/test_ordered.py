"""Streams are answered in order, a bounded number of requests at a time."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.common.ordered import in_order


class Source:
    """Numbers, counting how many were taken."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in range(self.count):
            self.taken += 1
            yield number


async def test_in_order_when_later_work_ends_first_then_the_order_stands() -> None:
    gates = [asyncio.Event() for _ in range(4)]

    async def work(number: int) -> int:
        await gates[number].wait()
        if number:
            gates[number - 1].set()
        return number

    gates[3].set()
    assert [r async for r in in_order(aiter(Source(4)), work, in_work=4)] == [0, 1, 2, 3]


async def test_in_order_when_the_reader_is_slow_then_the_sender_is_held_up() -> None:
    source = Source(100)

    async def work(number: int) -> int:
        return number

    results = in_order(aiter(source), work, in_work=4)
    assert await anext(results) == 0
    for _ in range(50):
        await asyncio.sleep(0)
    assert source.taken <= 5
    await results.aclose()


async def test_in_order_when_the_reader_leaves_then_what_is_in_work_is_cancelled() -> None:
    cancelled: list[int] = []
    first = asyncio.Event()
    first.set()

    async def work(number: int) -> int:
        if number == 0:
            return 0
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    results = in_order(aiter(Source(3)), work, in_work=3)
    assert await anext(results) == 0
    waiting = asyncio.ensure_future(anext(results))
    for _ in range(20):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await results.aclose()
    assert sorted(cancelled) == [1, 2]


async def test_in_order_when_work_raises_then_so_does_the_stream() -> None:
    async def work(number: int) -> int:
        if number == 1:
            raise ValueError("bad")
        return number

    results = in_order(aiter(Source(3)), work, in_work=2)
    assert await anext(results) == 0
    with pytest.raises(ValueError, match="bad"):
        await anext(results)


async def test_in_order_when_the_source_fails_then_the_failure_arrives_after_what_was_read() -> None:
    async def broken() -> AsyncIterator[int]:
        yield 0
        raise ConnectionError("gone")

    async def work(number: int) -> int:
        return number

    results = in_order(broken(), work, in_work=1)
    assert await anext(results) == 0
    with pytest.raises(ConnectionError):
        await anext(results)


async def test_in_order_when_what_is_in_work_weighs_enough_then_no_more_is_read() -> None:
    source = Source(100)
    gate = asyncio.Event()

    async def work(number: int) -> int:
        await gate.wait()
        return number

    results = in_order(aiter(source), work, in_work=16, weight=lambda number: 10, max_weight=25)
    first = asyncio.ensure_future(anext(results))
    for _ in range(50):
        await asyncio.sleep(0)
    assert source.taken == 3
    gate.set()
    assert [await first, *[number async for number in results]] == list(range(100))
