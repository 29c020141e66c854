"""Turns of an update: as many entries as fit the time, each once and in order."""

from collections.abc import Callable, Sequence

import pytest

from services.engine.turns import FIRST_ENTRIES, MAX_ENTRIES, TURN_S, Turns


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def working(clock: Clock, entry_s: float, parts: list[list[int]]) -> Callable[[Sequence[int]], None]:
    def work(part: Sequence[int]) -> None:
        clock.now_s += entry_s * len(part)
        parts.append(list(part))

    return work


@pytest.mark.parametrize("entry_s", [0.0, 0.00005, 0.001, 1.0])
async def test_each_when_entries_are_of_any_cost_then_all_are_done_once_in_order(entry_s: float) -> None:
    clock, parts = Clock(), list[list[int]]()
    await Turns(clock).each(range(1_000), working(clock, entry_s, parts))
    assert [entry for part in parts for entry in part] == list(range(1_000))
    assert max(len(part) for part in parts) <= MAX_ENTRIES


async def test_each_when_an_entry_takes_a_millisecond_then_turns_fit_the_time() -> None:
    clock, parts = Clock(), list[list[int]]()
    await Turns(clock).each(range(100), working(clock, 0.001, parts))
    assert len(parts[0]) == FIRST_ENTRIES
    longest_s = max(len(part) for part in parts[1:]) * 0.001
    assert 0.7 * TURN_S <= longest_s <= 1.01 * TURN_S


async def test_each_when_entries_are_cheap_then_turns_grow() -> None:
    clock, parts = Clock(), list[list[int]]()
    await Turns(clock).each(range(200), working(clock, 0.00005, parts))
    assert [len(part) for part in parts[:4]] == [8, 16, 32, 64]


async def test_each_when_an_entry_takes_longer_than_a_turn_then_one_at_a_time() -> None:
    clock, parts = Clock(), list[list[int]]()
    await Turns(clock).each(range(20), working(clock, 1.0, parts))
    assert {len(part) for part in parts[1:]} == {1}


async def test_quiet_when_something_is_read_or_written_then_it_begins_anew() -> None:
    clock = Clock()
    turns = Turns(clock)
    clock.now_s += 7
    assert turns.quiet_s == 7
    with turns.reader():
        clock.now_s += 1
    assert turns.quiet_s == 0
    clock.now_s += 3
    async with turns.writer():
        assert turns.quiet_s == 0
        clock.now_s += 5
    assert turns.quiet_s == 0
    clock.now_s += 2
    assert turns.quiet_s == 2
