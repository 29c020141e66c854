"""Bounded work in threads: how much at once, who is refused, and when a turn is free again."""

import asyncio
import threading

import pytest

from services.common.clock import Deadline, SystemClock
from services.common.errors import Overloaded
from services.tei.turns import Turns

CLOCK = SystemClock()


def later(seconds: float = 20.0) -> Deadline:
    return Deadline.after(seconds, CLOCK)


class Gate:
    """Work that begins when it can, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Event()

    def work(self) -> str:
        self.begun.release()
        assert self.let_go.wait(timeout=20)
        return "done"

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=20)


async def test_run_when_there_is_a_turn_then_the_result_or_the_failure_of_the_work():
    turns = Turns(CLOCK)
    assert await turns.run(lambda: 7, later()) == 7
    with pytest.raises(ZeroDivisionError):
        await turns.run(lambda: 1 // 0, later())
    assert await turns.run(lambda: 8, later()) == 8


async def test_run_when_as_many_wait_as_may_then_refused_at_once_with_a_time():
    turns, gate = Turns(CLOCK, at_once=1, waiting=1), Gate()
    running = asyncio.create_task(turns.run(gate.work, later()))
    await gate.has_begun()
    waiting = asyncio.create_task(turns.run(lambda: "next", later()))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as caught:
        await turns.run(lambda: "never", later())
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s >= 0.1
    gate.let_go.set()
    assert [await running, await waiting] == ["done", "next"]


@pytest.mark.parametrize(("max_wait_s", "deadline_s"), [(0.01, 20.0), (20.0, 0.01)])
async def test_run_when_no_turn_comes_free_in_time_then_refused(max_wait_s: float, deadline_s: float):
    turns, gate = Turns(CLOCK, at_once=1, max_wait_s=max_wait_s), Gate()
    running = asyncio.create_task(turns.run(gate.work, later()))
    await gate.has_begun()
    with pytest.raises(Overloaded):
        await turns.run(lambda: "never", later(deadline_s))
    gate.let_go.set()
    assert await running == "done"
    assert await turns.run(lambda: "again", later()) == "again"


async def test_run_when_the_caller_goes_away_then_its_turn_is_free_only_when_the_thread_is():
    turns, gate = Turns(CLOCK, at_once=1), Gate()
    running = asyncio.create_task(turns.run(gate.work, later()))
    await gate.has_begun()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(Overloaded):
        await turns.run(lambda: "never", later(0.01))
    gate.let_go.set()
    assert await turns.run(lambda: "other", later()) == "other"
