"""The batcher with a device under control: who goes when, and that every item ends exactly once."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from services.common.clock import Deadline, FakeClock
from services.common.errors import DeadlineExceeded, Overloaded, Reason, ServiceError
from services.inference.backend import OutOfMemory
from services.inference.batcher import HEALTH_CLIENT, Batcher, BatcherLimits, SubmitOutcome
from services.inference.errors import DeadlineUnreachable, DeviceLost, InferenceFailed, ShuttingDown
from services.inference.observer import ItemEnd, PassReport, SilentObserver
from services.inference.types import BatchOutput, Encoded, FloatArray, ItemOutput, Lane, TokenBatch
from tests.helpers.inference import DENSE, GatedBackend, encoded, of_length

LIMITS = BatcherLimits(budget_tokens=64, max_batch_items=8, close_timeout_seconds=5)
POISON, BLANK = 60, 61


class Recorder(SilentObserver):
    """A `BatcherObserver` that keeps what it was told and can be waited for."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.computed_once = 0
        self._changed = asyncio.Event()
        self.passes: list[tuple[int, int, int]] = []
        self.started = asyncio.Semaphore(0)

    def pass_ended(self, report: PassReport) -> None:
        self.passes.append((report.items, report.real_tokens, report.padded_tokens))
        self._changed.set()

    async def ended_passes(self, count: int) -> None:
        while len(self.passes) < count:
            self._changed.clear()
            await self._changed.wait()

    def call_started(self, lane: Lane, queue_s: float) -> None:
        self.started.release()

    def items_ended(self, outcome: ItemEnd, count: int) -> None:
        self.ends[outcome] = self.ends.get(outcome, 0) + count

    def shared(self, items: int) -> None:
        self.computed_once += items


class Bench:
    """A batcher on a gated backend, with shorthand for submitting."""

    def __init__(self, backend: GatedBackend, limits: BatcherLimits, known_passes: list[tuple[int, float]]) -> None:
        self.backend, self.clock, self.seen = backend, FakeClock(), Recorder()
        self.batcher = Batcher(
            [backend], limits=limits, clock=self.clock, observer=self.seen, known_passes=known_passes
        )

    def submit(
        self, *items: Encoded, lane: Lane = Lane.INTERACTIVE, seconds: float = 60, client: str = ""
    ) -> Awaitable[SubmitOutcome]:
        deadline = Deadline.after(seconds, self.clock)
        call = self.batcher.submit(items, outputs=DENSE, lane=lane, deadline=deadline, client=client)
        return asyncio.ensure_future(call)

    async def running(self, *items: Encoded, **how: Any) -> "asyncio.Future[SubmitOutcome]":
        """Submit and wait until the device has it in hand."""
        task = asyncio.ensure_future(self.submit(*items, **how))
        await asyncio.wait_for(self.seen.started.acquire(), 5)
        return task


@asynccontextmanager
async def bench(
    backend: GatedBackend | None = None, *, limits: BatcherLimits = LIMITS,
    known_passes: list[tuple[int, float]] | None = None,
) -> AsyncIterator[Bench]:  # fmt: skip
    made = Bench(backend or GatedBackend(), limits, known_passes or [])
    try:
        yield made
    finally:
        made.backend.open()
        await made.batcher.aclose()


async def settle() -> None:
    """Let what was scheduled on the event loop happen: submitting, and the recut that it asks for."""
    for _ in range(4):
        await asyncio.sleep(0)


def _is_row(outcome: object) -> bool:
    return isinstance(outcome, ItemOutput) and abs(float(np.linalg.norm(_row(outcome))) - 1) < 1e-4


def _row(outcome: object) -> FloatArray:
    assert isinstance(outcome, ItemOutput)
    assert outcome.dense is not None
    return outcome.dense


async def test_submit_when_the_device_is_idle_then_goes_at_once():
    async with bench(GatedBackend(gated=False)) as b:
        outcome = await b.submit(of_length(5))
        assert _is_row(outcome.outcomes[0])
        assert b.seen.passes == [(1, 5, 5)]


async def test_submit_when_items_differ_in_length_then_outcomes_keep_the_order_of_the_items():
    items = [of_length(n, seed=9) for n in (30, 3, 17, 4, 29, 3)]
    async with bench(GatedBackend(gated=False)) as b:
        together = await b.submit(*items)
        for item, row in zip(items, together.outcomes, strict=True):
            alone = await b.submit(item)
            assert np.array_equal(_row(row), _row(alone.outcomes[0]))


async def test_submit_when_the_device_is_busy_then_waiting_calls_share_the_next_pass():
    async with bench() as b:
        first = await b.running(of_length(5))
        others = [b.submit(of_length(6)) for _ in range(4)]
        await settle()
        b.backend.open()
        await asyncio.gather(first, *others)
        assert [batch.size for batch in b.backend.passes] == [1, 4]


async def test_submit_when_bulk_is_ready_and_interactive_arrives_then_interactive_goes_first():
    async with bench() as b:
        first = await b.running(of_length(5))
        bulk = [b.submit(of_length(60), lane=Lane.BULK) for _ in range(2)]
        await settle()
        urgent = b.submit(of_length(7))
        await settle()
        b.backend.open()
        await asyncio.gather(first, urgent, *bulk)
        assert [batch.ids.shape[1] for batch in b.backend.passes] == [5, 7, 60, 60]


async def test_submit_when_one_item_poisons_a_pass_then_it_alone_fails():
    backend = GatedBackend(gated=False, break_on=[POISON])
    async with bench(backend) as b:
        outcome = await b.submit(of_length(4), encoded(2, POISON, 5, 3), of_length(4, 1), of_length(4, 2))
        assert [_is_row(o) for o in outcome.outcomes] == [True, False, True, True]
        assert isinstance(outcome.outcomes[1], InferenceFailed)
        assert _is_row((await b.submit(of_length(9))).outcomes[0])  # the worker lives on
        assert b.seen.ends == {"done": 4, "failed": 1}


async def test_submit_when_a_row_is_nan_then_that_item_alone_fails():
    async with bench(GatedBackend(gated=False, nan_on=[BLANK])) as b:
        outcome = await b.submit(of_length(4), encoded(2, BLANK, 5, 3))
        assert _is_row(outcome.outcomes[0])
        assert isinstance(outcome.outcomes[1], InferenceFailed)
        assert outcome.outcomes[1].error_reason is Reason.INFERENCE_FAILED


async def test_submit_when_the_device_is_lost_then_all_fail_and_later_calls_are_refused():
    backend = GatedBackend(break_on=[POISON], raises=lambda: DeviceLost("gone"))
    async with bench(backend) as b:
        first = await b.running(encoded(2, POISON, 3))
        waiting = b.submit(of_length(5))
        await settle()
        b.backend.step()
        assert isinstance((await first).outcomes[0], DeviceLost)
        assert isinstance((await waiting).outcomes[0], DeviceLost)
        assert not b.batcher.healthy
        with pytest.raises(DeviceLost):
            await b.submit(of_length(5))


async def test_submit_when_cancelled_in_the_queue_then_never_reaches_the_device():
    async with bench() as b:
        first = await b.running(of_length(5))
        doomed = asyncio.ensure_future(b.submit(of_length(33)))
        kept = b.submit(of_length(6))
        await settle()
        doomed.cancel()
        await asyncio.wait([doomed])
        await settle()
        b.backend.open()
        await asyncio.gather(first, kept)
        assert [batch.ids.shape[1] for batch in b.backend.passes] == [5, 6]
        assert b.seen.ends == {"done": 2, "cancelled": 1}


async def test_submit_when_cancelled_on_the_device_then_others_of_the_pass_are_served():
    async with bench() as b:
        first = await b.running(of_length(5))
        pair = [asyncio.ensure_future(b.submit(of_length(6, seed))) for seed in (1, 2)]
        await settle()
        b.backend.step()
        await first
        await asyncio.wait_for(b.seen.started.acquire(), 5)
        pair[0].cancel()
        b.backend.step()
        assert _is_row((await pair[1]).outcomes[0])
        assert pair[0].cancelled()
        assert b.seen.ends == {"done": 2, "cancelled": 1}


async def test_submit_when_the_deadline_passes_in_the_queue_then_expires_without_the_device():
    async with bench() as b:
        first = await b.running(of_length(5))
        late = b.submit(of_length(33), seconds=10)
        await settle()
        b.batcher._take_back()  # pyright: ignore[reportPrivateUsage]  # not yet promised to the device
        b.clock.advance(11)
        b.backend.open()
        await first
        outcome = await late
        assert isinstance(outcome.outcomes[0], DeadlineExceeded)
        assert [batch.ids.shape[1] for batch in b.backend.passes] == [5]


async def test_submit_when_a_call_can_no_longer_be_done_in_time_then_it_is_given_up_whole():
    async with bench(known_passes=[(64, 1.0)]) as b:
        first = await b.running(of_length(64))
        late = b.submit(*(of_length(60) for _ in range(4)), seconds=10)
        await settle()
        other = b.submit(of_length(33))
        await settle()
        b.clock.advance(9.9)  # a tenth of a second is left, for seconds of work
        b.batcher._recut()  # pyright: ignore[reportPrivateUsage]
        b.backend.open()
        outcome = await late
        assert all(isinstance(one, DeadlineExceeded) for one in outcome.outcomes)
        assert _is_row((await other).outcomes[0])
        await first
        assert [batch.ids.shape[1] for batch in b.backend.passes] == [64, 33]
        assert b.seen.ends == {"done": 2, "expired": 4}


async def test_submit_when_the_device_hangs_then_the_caller_is_released_at_its_deadline():
    async with bench() as b:
        outcome = await b.submit(of_length(5), seconds=0.02)
        assert isinstance(outcome.outcomes[0], DeadlineExceeded)
        assert b.seen.ends == {"expired": 1}


async def test_submit_when_the_backlog_is_long_then_refuses_by_one_rule_for_all_sizes():
    limits = BatcherLimits(budget_tokens=64, max_backlog_seconds=2.0)
    async with bench(limits=limits, known_passes=[(64, 1.0)]) as b:  # a pass of 64 tokens takes a second
        admitted = [await b.running(of_length(64))]
        admitted += [asyncio.ensure_future(b.submit(of_length(64))) for _ in range(2)]
        await settle()
        for size in (1, 8):
            with pytest.raises(Overloaded) as caught:
                await b.submit(*(of_length(4) for _ in range(size)))
            assert caught.value.retry_after_s is not None
            assert 0 < caught.value.retry_after_s <= 3
        assert b.seen.ends == {"refused": 9}
        b.backend.open()
        await asyncio.gather(*admitted)


async def test_submit_when_the_backlog_outlasts_the_deadline_then_refuses_before_any_work():
    async with bench(known_passes=[(64, 1.0)]) as b:
        first = await b.running(of_length(64))
        with pytest.raises(Overloaded) as refused:
            await b.submit(of_length(64), seconds=1.5)
        assert refused.value.retry_after_s == pytest.approx(0.75)  # 1.25 for what runs, 1 of its own, less 1.5
        with pytest.raises(DeadlineUnreachable):  # too short for the work itself: no waiting would help
            await b.submit(of_length(64), seconds=0.9)
        b.backend.open()
        await first
        assert len(b.backend.passes) == 1


async def test_submit_when_bulk_waits_in_masses_then_interactive_is_still_admitted():
    limits = BatcherLimits(budget_tokens=64, max_backlog_seconds=3.0)
    async with bench(limits=limits, known_passes=[(64, 1.0)]) as b:
        tasks = [await b.running(of_length(64), lane=Lane.BULK)]
        tasks += [asyncio.ensure_future(b.submit(*(of_length(64) for _ in range(8)), lane=Lane.BULK))]
        await settle()
        with pytest.raises(Overloaded):
            await b.submit(of_length(4), lane=Lane.BULK)
        tasks.append(asyncio.ensure_future(b.submit(of_length(4))))
        b.backend.open()
        await asyncio.gather(*tasks)


async def test_aclose_when_work_waits_then_every_waiter_is_completed():
    b = Bench(GatedBackend(), LIMITS, [])
    running = await b.running(of_length(5))
    waiting = [asyncio.ensure_future(b.submit(of_length(6), lane=lane)) for lane in Lane]
    await settle()
    closing = asyncio.ensure_future(b.batcher.aclose())
    await settle()
    b.backend.open()
    await closing
    assert _is_row((await running).outcomes[0])
    for task in waiting:
        assert isinstance((await task).outcomes[0], ShuttingDown)
    with pytest.raises(ShuttingDown):
        await b.submit(of_length(5))


async def test_aclose_when_the_device_hangs_then_gives_up_and_fails_its_callers():
    b = Bench(GatedBackend(), BatcherLimits(close_timeout_seconds=0.02), [])
    running = await b.running(of_length(5))
    await b.batcher.aclose()
    assert isinstance((await running).outcomes[0], ShuttingDown)
    b.backend.open()


async def test_submit_when_there_are_no_items_then_answers_without_the_device():
    async with bench() as b:
        assert (await b.submit()).outcomes == ()


_CALLS = st.lists(
    st.tuples(st.sampled_from(Lane), st.lists(st.integers(3, 80), min_size=1, max_size=12), st.booleans()),
    min_size=1, max_size=12,
)  # fmt: skip


@given(_CALLS, st.booleans())
@settings(max_examples=25, deadline=None)
def test_submit_when_calls_of_all_kinds_meet_then_every_item_ends_exactly_once(
    calls: list[tuple[Lane, list[int], bool]], poisoned: bool
):
    asyncio.run(_storm(calls, poisoned))


async def _storm(calls: list[tuple[Lane, list[int], bool]], poisoned: bool) -> None:
    async with bench(GatedBackend(break_on=[POISON] if poisoned else [])) as b:
        first = await b.running(of_length(5))
        tasks = [
            asyncio.ensure_future(b.submit(*(of_length(n, seed) for seed, n in enumerate(lengths)), lane=lane))
            for lane, lengths, _ in calls
        ]
        await settle()
        for task, (_, _, cancelled) in zip(tasks, calls, strict=True):
            if cancelled:
                task.cancel()
        await settle()
        b.backend.open()
        ended = await asyncio.wait_for(asyncio.gather(first, *tasks, return_exceptions=True), 20)
        for outcome, (_, lengths, cancelled) in zip(ended[1:], calls, strict=True):
            assert isinstance(outcome, asyncio.CancelledError) == cancelled
            if isinstance(outcome, SubmitOutcome):
                assert len(outcome.outcomes) == len(lengths)
                assert all(_is_row(o) or isinstance(o, ServiceError) for o in outcome.outcomes)
                assert poisoned or all(_is_row(o) for o in outcome.outcomes)
        assert sum(b.seen.ends.values()) == 1 + sum(len(lengths) for _, lengths, _ in calls)
        for batch in b.backend.passes:
            assert batch.size == 1 or batch.padded_tokens <= LIMITS.budget_tokens
        reals = sum(len(lengths) for _, lengths, cancelled in calls if not cancelled) + 1
        if not poisoned:
            assert reals - b.seen.computed_once <= sum(items for items, _, _ in b.seen.passes) <= reals


async def test_submit_when_the_same_text_is_in_flight_then_it_is_computed_once():
    item = of_length(6)
    async with bench() as b:
        first = await b.running(of_length(5))
        same = [b.submit(item), b.submit(item, of_length(7)), b.submit(item, item)]
        await settle()
        b.backend.open()
        calls = [await call for call in (first, *same)]
        assert sum(batch.size for batch in b.backend.passes) == 3
        assert b.seen.computed_once == 3
        rows = [_row(call.outcomes[0]) for call in calls[1:]]
        assert all(np.array_equal(row, rows[0]) for row in rows)
        assert np.array_equal(_row(calls[3].outcomes[1]), rows[0])
        assert b.seen.ends == {"done": 6}


async def test_submit_when_the_first_of_two_equal_calls_is_cancelled_then_the_other_is_served():
    item = of_length(6)
    async with bench() as b:
        first = await b.running(of_length(5))
        doomed, kept = asyncio.ensure_future(b.submit(item)), b.submit(item)
        await settle()
        doomed.cancel()
        await settle()
        b.backend.open()
        assert _is_row((await kept).outcomes[0])
        await first
        assert b.seen.ends == {"done": 2, "cancelled": 1}


async def test_submit_when_the_same_text_runs_already_then_its_result_is_shared():
    item = of_length(6)
    async with bench() as b:
        first = await b.running(item)
        late = b.submit(item)
        await settle()
        b.backend.step()
        assert _is_row((await asyncio.wait_for(late, 5)).outcomes[0])
        await first
        assert len(b.backend.passes) == 1


async def test_submit_when_a_bulk_text_is_asked_for_interactively_then_it_goes_at_once():
    item = of_length(60)
    async with bench() as b:
        first = await b.running(of_length(5))
        bulk = b.submit(of_length(61), of_length(62), item, lane=Lane.BULK)
        await settle()
        urgent = b.submit(item)
        await settle()
        b.backend.open()
        await asyncio.gather(first, bulk, urgent)
        assert [batch.ids.shape[1] for batch in b.backend.passes] == [5, 60, 61, 62]


async def test_submit_when_one_client_has_queued_masses_then_another_goes_next():
    async with bench() as b:
        first = await b.running(of_length(5))
        greedy = b.submit(*(of_length(60) for _ in range(20)), client="greedy")
        await settle()
        modest = [b.submit(of_length(40), of_length(50), client=f"modest-{i}") for i in range(2)]
        await settle()
        b.backend.open()
        await asyncio.gather(first, greedy, *modest)
        widths = [batch.ids.shape[1] for batch in b.backend.passes]
        assert max(index for index, width in enumerate(widths) if width in (40, 50)) <= 7


async def test_admit_when_one_client_has_filled_the_queue_then_another_is_still_admitted():
    limits = BatcherLimits(budget_tokens=64, max_backlog_seconds=3.0)
    async with bench(limits=limits, known_passes=[(64, 1.0)]) as b:
        tasks = [await b.running(of_length(64), client="greedy")]
        tasks.append(asyncio.ensure_future(b.submit(*(of_length(64) for _ in range(8)), client="greedy")))
        await settle()
        with pytest.raises(Overloaded):
            await b.submit(of_length(4), client="greedy")
        tasks.append(asyncio.ensure_future(b.submit(of_length(4), client="modest")))
        await settle()
        b.backend.open()
        await asyncio.gather(*tasks)


async def test_admit_when_many_small_clients_come_then_their_sum_is_bounded():
    limits = BatcherLimits(budget_tokens=64, max_backlog_seconds=3.0)
    async with bench(limits=limits, known_passes=[(64, 1.0)]) as b:
        tasks = [await b.running(of_length(64))]
        refused = 0
        for number in range(12):
            tasks.append(asyncio.ensure_future(b.submit(of_length(64), client=f"client-{number}")))
            await settle()
            refused += tasks[-1].done()
        b.backend.open()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert refused >= 8
        assert sum(isinstance(one, Overloaded) for one in ended) == refused


async def test_cut_when_there_is_interactive_traffic_then_bulk_passes_are_short():
    limits = BatcherLimits(budget_tokens=640, bulk_pass_seconds=0.02, interactive_memory_seconds=5)
    async with bench(limits=limits, known_passes=[(1000, 0.2), (100, 0.02)]) as b:
        first = await b.running(of_length(5))
        bulk = b.submit(*(of_length(48) for _ in range(12)), lane=Lane.BULK)
        await settle()
        b.backend.step()
        await first
        await asyncio.wait_for(b.seen.started.acquire(), 5)
        b.clock.advance(6)
        b.batcher._recut()  # pyright: ignore[reportPrivateUsage]  # what lies ready was cut while there was traffic
        b.backend.open()
        await bulk
        assert [items for items, _, _ in b.seen.passes] == [1, 2, 10]


async def test_cut_when_only_health_is_checked_then_bulk_passes_are_long():
    limits = BatcherLimits(budget_tokens=640, bulk_pass_seconds=0.02)
    async with bench(limits=limits, known_passes=[(1000, 0.2), (100, 0.02)]) as b:
        first = await b.running(of_length(5), client=HEALTH_CLIENT)
        bulk = b.submit(*(of_length(48) for _ in range(12)), lane=Lane.BULK)
        await settle()
        b.backend.open()
        await asyncio.gather(first, bulk)
        assert [items for items, _, _ in b.seen.passes] == [1, 12]


class ScarceBackend(GatedBackend):
    """A device that has room for so many tokens; for so many failures it has none at all."""

    def __init__(self, *, room: int, failures: int = 1_000_000) -> None:
        super().__init__(gated=False)
        self.room, self.failures = room, failures

    def run(self, batch: TokenBatch) -> BatchOutput:
        if batch.padded_tokens > self.room and self.failures:
            self.failures -= 1
            raise OutOfMemory
        return super().run(batch)


async def test_submit_when_memory_is_short_once_then_it_is_freed_and_the_pass_tried_again():
    backend = ScarceBackend(room=10, failures=1)
    async with bench(backend) as b:
        outcome = await b.submit(of_length(8), of_length(8))
        assert all(_is_row(one) for one in outcome.outcomes)
        assert backend.released == 1
        assert [batch.size for batch in backend.passes] == [2]


async def test_submit_when_a_pass_does_not_fit_then_it_is_split_and_later_passes_are_smaller():
    backend = ScarceBackend(room=20)
    async with bench(backend) as b:
        outcome = await b.submit(*(of_length(9) for _ in range(4)))
        assert all(_is_row(one) for one in outcome.outcomes)
        assert backend.released
        freed = backend.released
        assert all(_is_row(one) for one in (await b.submit(of_length(10), of_length(10), of_length(10))).outcomes)
        assert backend.released == freed  # it was not tried with what is known not to fit


async def test_submit_when_one_text_alone_does_not_fit_then_it_alone_fails():
    async with bench(ScarceBackend(room=20)) as b:
        outcome = await b.submit(of_length(8), of_length(40), of_length(9))
        assert [_is_row(one) for one in outcome.outcomes] == [True, False, True]
        assert isinstance(outcome.outcomes[1], InferenceFailed)
        assert _is_row((await b.submit(of_length(10))).outcomes[0])


class Dying(GatedBackend):
    """A device that fails a pass, and is lost with the next one."""

    def __init__(self) -> None:
        super().__init__(gated=False)
        self.runs = 0

    def run(self, batch: TokenBatch) -> BatchOutput:
        self.runs += 1
        raise RuntimeError("boom") if self.runs == 1 else DeviceLost("gone")


async def test_submit_when_the_device_is_lost_while_a_pass_is_rescued_then_nothing_more_is_tried_on_it():
    backend = Dying()
    async with bench(backend) as b:
        outcome = await b.submit(*(of_length(5, seed) for seed in range(8)))
        assert all(isinstance(one, DeviceLost) for one in outcome.outcomes)
        assert backend.runs == 2
        assert b.batcher.lost


class Untidy(ScarceBackend):
    """A device whose library fails to free memory too."""

    def release_memory(self) -> None:
        super().release_memory()
        raise RuntimeError("no")


async def test_submit_when_freeing_memory_fails_then_the_pass_is_split_all_the_same_and_the_device_goes_on():
    async with bench(Untidy(room=20)) as b:
        outcome = await asyncio.wait_for(b.submit(of_length(9), of_length(9), of_length(30)), 5)
        assert [_is_row(one) for one in outcome.outcomes] == [True, True, False]
        assert b.batcher.healthy
        assert _is_row((await b.submit(of_length(10))).outcomes[0])


async def test_submit_when_a_pass_fails_then_the_log_tells_why():
    with capture_logs() as events:
        async with bench(GatedBackend(gated=False, break_on=[POISON])) as b:
            await b.submit(encoded(2, POISON, 3))
    (event,) = [event for event in events if event["event"] == "pass_failed"]
    assert (event["kind"], event["reason"], event["items"]) == ("RuntimeError", "boom", 1)


async def test_submit_when_it_has_ended_then_no_circle_keeps_its_outputs_in_memory():
    item = of_length(6)
    async with bench(GatedBackend(gated=False)) as b:
        await b.submit(of_length(5))
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                await b.submit(item, item)
                await asyncio.gather(b.submit(item), b.submit(of_length(7)))
            # Of thirty; the device may still hold its last pass.
            assert sum(type(one).__name__ == "_Call" for one in gc.get_objects()) <= 10
        finally:
            gc.enable()


async def test_admit_when_an_estimate_forbids_all_work_of_a_size_then_it_is_put_to_the_test():
    """As after a minute in which the device was slow: who refuses everything would never learn that it is over."""
    async with bench(GatedBackend(gated=False), known_passes=[(64, 100.0)]) as b:
        for _ in range(3):
            with pytest.raises(DeadlineUnreachable):
                await b.submit(of_length(64), seconds=5)
        b.clock.advance(11)
        await b.submit(of_length(8), seconds=60)  # others do not take its turn
        assert _is_row((await b.submit(of_length(64), seconds=5)).outcomes[0])
        with pytest.raises(DeadlineUnreachable):
            await b.submit(of_length(64), seconds=0.001)


async def test_admit_when_one_of_two_devices_is_idle_then_what_the_other_does_counts_for_nothing():
    devices = [GatedBackend(), GatedBackend()]
    clock, seen = FakeClock(), Recorder()
    batcher = Batcher(devices, limits=LIMITS, clock=clock, observer=seen, known_passes=[(64, 1.0)])
    busy = asyncio.ensure_future(
        batcher.submit([of_length(64)], outputs=DENSE, lane=Lane.BULK, deadline=Deadline.after(60, clock))
    )
    await asyncio.wait_for(seen.started.acquire(), 5)
    batcher.admit(Lane.BULK, Deadline.after(0.4, clock), tokens=4)
    with pytest.raises(DeadlineUnreachable):  # one pass runs on one device
        batcher.admit(Lane.BULK, Deadline.after(0.8, clock), tokens=64)
    for device in devices:
        device.open()
    await busy
    await batcher.aclose()


async def test_healthy_when_one_of_two_devices_hangs_then_it_is_not_though_the_other_answers():
    devices = [GatedBackend(), GatedBackend(gated=False)]
    clock, seen = FakeClock(), Recorder()
    batcher = Batcher(devices, limits=LIMITS, clock=clock, observer=seen, known_passes=[(64, 1.0)])
    stuck = asyncio.ensure_future(
        batcher.submit([of_length(64)], outputs=DENSE, lane=Lane.BULK, deadline=Deadline.after(90, clock))
    )
    await asyncio.wait_for(seen.started.acquire(), 5)
    clock.advance(29)
    assert batcher.healthy
    clock.advance(2)
    probe = await batcher.submit([of_length(5)], outputs=DENSE, lane=Lane.BULK, deadline=Deadline.after(5, clock))
    assert _is_row(probe.outcomes[0])
    assert not batcher.healthy
    devices[0].open()
    await stuck
    assert batcher.healthy
    await batcher.aclose()


async def test_admit_when_too_many_items_wait_then_it_says_so():
    async with bench(limits=BatcherLimits(budget_tokens=64, max_queued_items=3)) as b:
        tasks = [await b.running(of_length(64)), b.submit(*(of_length(64) for _ in range(6)))]
        await settle()
        with pytest.raises(Overloaded, match="5 texts wait, the limit is 3"):
            await b.submit(of_length(5))
        b.backend.open()
        await asyncio.gather(*tasks)


async def test_submit_when_there_are_two_devices_then_both_work_at_once():
    devices = [GatedBackend(), GatedBackend()]
    batcher = Batcher(devices, limits=LIMITS, clock=FakeClock(), observer=(seen := Recorder()))
    deadline = Deadline.after(60, FakeClock())
    items = [of_length(60) for _ in range(6)]
    call = asyncio.ensure_future(batcher.submit(items, outputs=DENSE, lane=Lane.BULK, deadline=deadline))
    for device in devices:
        device.step()
    await asyncio.wait_for(seen.ended_passes(2), 5)
    assert [len(device.passes) for device in devices] == [1, 1]
    for device in devices:
        device.open()
    assert all(_is_row(one) for one in (await call).outcomes)
    assert sum(len(device.passes) for device in devices) == 6
    await batcher.aclose()
