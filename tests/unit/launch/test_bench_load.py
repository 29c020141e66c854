"""The load generator: how many calls, when, and what their latency counts from."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import grpc
import pytest
from pergamon.client import OverloadedError, Timing

from services.launch.bench_load import LoadPlan, Measured, Ticket, run_load

STALL_S = 0.5


class Clock:
    """Time that passes only by what happens in it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)

    @property
    def timing(self) -> Timing:
        return Timing(now=lambda: self.now_s, sleep=self.sleep)


def tickets(send: Callable[[], Awaitable[int]], texts: int = 1) -> Iterator[Ticket]:
    while True:
        yield Ticket(label="x", texts=texts, send=send)


def refused(retry_after_s: float | None) -> OverloadedError:
    return OverloadedError(grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", "full", retry_after_s=retry_after_s)


async def test_closed_loop_when_given_calls_then_makes_exactly_those_and_never_more_than_its_clients_at_once() -> None:
    in_air = most = 0

    async def send() -> int:
        nonlocal in_air, most
        in_air += 1
        most = max(most, in_air)
        await asyncio.sleep(0)
        in_air -= 1
        return 1

    measured = await run_load(LoadPlan(clients=3, calls=10), tickets(send), Measured())
    assert (measured.sent, measured.ended, most) == (10, 10, 3)
    assert measured.groups[("x", "")].texts == 10


async def test_closed_loop_when_time_is_up_then_the_last_calls_end_but_count_in_no_rate() -> None:
    clock = Clock()

    async def send() -> int:
        clock.now_s += 0.3
        return 1

    measured = await run_load(LoadPlan(clients=1, duration_s=1.0), tickets(send), Measured(), clock.timing)
    group = measured.groups[("x", "")]
    assert (measured.ended, group.calls_in_window, measured.window_s) == (4, 3, 1.0)
    assert list(group.latency_s) == pytest.approx([0.3] * 4)


async def test_closed_loop_when_refused_then_waits_as_asked_but_no_longer_than_the_plan_allows() -> None:
    clock, answers = Clock(), iter([0.25, 60.0, None])

    async def send() -> int:
        raise refused(next(answers))

    plan = LoadPlan(clients=1, calls=3, longest_pause_s=2.0)
    measured = await run_load(plan, tickets(send), Measured(), clock.timing)
    assert clock.slept == [0.25, 2.0]
    assert len(measured.groups[("x", "OVERLOADED")].latency_s) == 3


async def test_open_loop_when_the_server_stalls_then_latency_counts_from_the_time_that_each_call_was_due() -> None:
    clock = Clock()
    first = True

    async def send() -> int:
        nonlocal first
        if first:
            first, clock.now_s = False, clock.now_s + STALL_S
        return 1

    plan = LoadPlan(rate_per_s=100.0, calls=20)
    measured = await run_load(plan, tickets(send), Measured(), clock.timing)
    latencies = list(measured.groups[("x", "")].latency_s)
    late = [seconds for seconds in latencies if seconds > 0.1]
    # All that were due during the stall are late by what was left of it, not only the one that stalled.
    assert len(late) > 10
    assert max(latencies) == pytest.approx(STALL_S, abs=0.05)
    assert late == sorted(late, reverse=True)


async def test_open_loop_when_nothing_is_answered_then_no_more_than_allowed_are_in_the_air_and_the_rest_not_sent() -> (
    None
):
    clock, measured, released = Clock(), Measured(), asyncio.Event()

    async def send() -> int:
        await released.wait()
        return 1

    plan = LoadPlan(rate_per_s=1000.0, calls=10, max_outstanding=3)
    running = asyncio.create_task(run_load(plan, tickets(send), measured, clock.timing))
    while measured.sent < 10:  # noqa: ASYNC110 - a turn of the loop at a time, and no time passes
        await asyncio.sleep(0)
    assert (measured.not_sent, measured.ended) == (7, 0)
    released.set()
    await running
    assert (measured.ended, measured.hung) == (3, 0)


async def test_open_loop_when_seeds_are_equal_then_calls_are_due_at_the_same_times_at_about_the_rate() -> None:
    async def send() -> int:
        return 1

    clocks = [Clock(), Clock()]
    for clock in clocks:
        await run_load(LoadPlan(rate_per_s=50.0, calls=400, seed=3), tickets(send), Measured(), clock.timing)
    assert clocks[0].slept == clocks[1].slept
    assert 6.0 < clocks[0].now_s < 10.0
    assert len(set(clocks[0].slept)) == 400  # drawn, not in step


async def test_a_call_without_an_answer_when_its_time_has_long_passed_then_counts_as_hung() -> None:
    async def send() -> int:
        await asyncio.Event().wait()
        return 1

    plan = LoadPlan(clients=2, calls=5, timeout_s=0.01, longest_pause_s=0.0, hung_after_s=0.01)
    measured = await run_load(plan, tickets(send), Measured())
    assert (measured.hung, measured.ended) == (2, 0)


async def test_a_call_when_it_fails_as_none_should_then_the_run_ends_with_that_error_and_nothing_goes_on() -> None:
    ended = asyncio.Event()
    numbers = iter(range(10))

    async def send() -> int:
        if next(numbers):
            raise ZeroDivisionError
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return 1

    with pytest.raises(ZeroDivisionError):
        await run_load(LoadPlan(clients=2, calls=5), tickets(send), Measured())
    assert ended.is_set()


async def test_texts_when_some_of_a_call_are_not_answered_then_counted_as_failed() -> None:
    async def send() -> int:
        return 3

    measured = await run_load(LoadPlan(clients=1, calls=2), tickets(send, texts=4), Measured())
    assert (measured.failed_texts, measured.groups[("x", "")].texts) == (2, 6)
