"""Batches the items of all callers into passes within a budget of tokens, and ends every item exactly once."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from services.common.clock import Clock, Deadline
from services.common.errors import DeadlineExceeded, Overloaded, ServiceError
from services.inference.backend import Backend
from services.inference.cost import CostModel
from services.inference.errors import DeadlineUnreachable, DeviceLost, ShuttingDown
from services.inference.queueing import Lanes, Ticket
from services.inference.types import Encoded, ItemOutput, Lane, Outputs
from services.inference.worker import DeviceWorker, Pass, PassEnded, prepare

_T = TypeVar("_T")
ItemEnd = Literal["done", "failed", "cancelled", "expired", "refused"]


class BatcherObserver(Protocol):
    """What the batcher tells about itself; services connect it to their metrics. Called on the event loop."""

    def pass_ended(self, *, items: int, real_tokens: int, padded_tokens: int, seconds: float) -> None: ...

    def call_started(self, lane: Lane, queue_s: float) -> None: ...

    def items_ended(self, outcome: ItemEnd, count: int) -> None: ...

    def backlog(self, seconds: float) -> None: ...


class SilentObserver:
    def pass_ended(self, *, items: int, real_tokens: int, padded_tokens: int, seconds: float) -> None: ...

    def call_started(self, lane: Lane, queue_s: float) -> None: ...

    def items_ended(self, outcome: ItemEnd, count: int) -> None: ...

    def backlog(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherLimits:
    """`budget_tokens` padded tokens of a pass; the rest bounds the queue. See `InferenceSettings`."""

    budget_tokens: int = 2048
    max_batch_items: int = 256
    bulk_every_passes: int = 4
    max_backlog_seconds: float = 10.0
    max_queued_items: int = 65_536
    close_timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SubmitOutcome:
    """One outcome per item, in order. `queue_s` until the first pass began, `inference_s` from there to the end."""

    outcomes: tuple[ItemOutput | ServiceError, ...]
    queue_s: float
    inference_s: float


@dataclass(slots=True, eq=False)
class _Call:
    done: "asyncio.Future[None]"
    deadline: Deadline
    submitted_at: float
    lane: Lane
    outcomes: list[ItemOutput | ServiceError | None]
    tickets: list[Ticket] = field(default_factory=list[Ticket])
    pending: int = 0
    started_at: float | None = None
    abandoned: bool = False


class Batcher:
    """A queue before one backend. Create and use it on one event loop; the device runs in a thread of its own.

    An idle device goes at once; while it is busy the next pass is kept ready, and recut as long as it has room or
    the wrong lane. Refusals (`Overloaded`, `DeadlineUnreachable`) come before any work and by one rule for calls of any
    size: the estimated seconds until the call would start.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        limits: BatcherLimits,
        clock: Clock,
        observer: BatcherObserver | None = None,
        known_passes: Sequence[tuple[int, float]] = (),
    ) -> None:
        """`known_passes` are (padded tokens, seconds) measured before, so that estimates hold from the first call."""
        self._backend = backend
        self._limits = limits
        self._clock = clock
        self._observer: BatcherObserver = observer or SilentObserver()
        self._loop = asyncio.get_running_loop()
        self._cost = CostModel()
        for padded_tokens, seconds in known_passes:
            self._cost.observe(padded_tokens, seconds)
        self._lanes = Lanes(
            budget_tokens=limits.budget_tokens, max_items=limits.max_batch_items, bulk_every=limits.bulk_every_passes
        )
        self._running: Pass | None = None
        self._running_since = 0.0
        self._ready: Pass | None = None
        self._recut_scheduled = False
        self._closing = False
        self._lost = False
        self._idle = asyncio.Event()
        self._worker = DeviceWorker(
            backend,
            on_taken=lambda work: self._from_thread(self._taken, work),
            on_ended=lambda ended: self._from_thread(self._ended, ended),
        )

    # --- what callers see

    @property
    def healthy(self) -> bool:
        return not self._lost and not self._closing and self._worker.alive

    def backlog_seconds(self, lane: Lane = Lane.BULK) -> float:
        """Estimated seconds until work submitted now in `lane` would start."""
        interactive, bulk = (self._lanes.queues[each].tokens for each in (Lane.INTERACTIVE, Lane.BULK))
        held = 0
        if self._ready is not None and (lane is Lane.BULK or self._ready.lane is Lane.INTERACTIVE):
            held = self._ready.batch.padded_tokens
        if lane is Lane.INTERACTIVE:  # of BULK only its guaranteed share comes before
            bulk = min(bulk, interactive // max(1, self._limits.bulk_every_passes - 1))
        return self._seconds_of(interactive + bulk + held) + self._running_remainder_s()

    def admit(self, lane: Lane, deadline: Deadline, *, items: int = 1, tokens: int = 0) -> None:
        """Raise if work submitted now would be refused. Cheap; ask before tokenising."""
        if self._lost:
            raise DeviceLost("the accelerator was lost; this server is draining, use another one")
        if self._closing:
            raise ShuttingDown("this server is draining; use another one")
        wait_s = self.backlog_seconds(lane)
        if wait_s > self._limits.max_backlog_seconds or len(self._lanes) > self._limits.max_queued_items:
            self._observer.items_ended("refused", items)
            retry_after_s = max(0.1, wait_s - self._limits.max_backlog_seconds / 2)
            raise Overloaded(
                f"work would wait {wait_s:.1f} s, the limit is {self._limits.max_backlog_seconds:.1f} s: "
                f"retry in {retry_after_s:.1f} s",
                retry_after_s=retry_after_s,
            )
        need_s, left_s = wait_s + self._seconds_of(tokens), deadline.remaining_s()
        if left_s <= 0.0 or need_s > left_s:
            self._observer.items_ended("refused", items)
            raise DeadlineUnreachable(
                f"the work needs about {need_s:.2f} s with what waits before it, the deadline leaves {left_s:.2f} s: "
                "send less or allow more time"
            )

    async def submit(
        self, items: Sequence[Encoded], *, outputs: Outputs, lane: Lane, deadline: Deadline, client: str = ""
    ) -> SubmitOutcome:
        """Run `items` and wait for all of them; `client` is whose turn it is that they take.

        Raises `Overloaded`, `DeadlineUnreachable`, `ShuttingDown` or `DeviceLost` before any work; later failures are
        outcomes of their items. Cancelling the caller drops what has not reached the device.
        """
        if not items:
            return SubmitOutcome(outcomes=(), queue_s=0.0, inference_s=0.0)
        self.admit(lane, deadline, items=len(items), tokens=sum(item.token_count for item in items))
        call = _Call(
            done=self._loop.create_future(), deadline=deadline, submitted_at=self._clock.monotonic(), lane=lane,
            outcomes=[None] * len(items), pending=len(items),
        )  # fmt: skip
        call.tickets = [
            Ticket(call=call, index=i, encoded=item, outputs=outputs, lane=lane) for i, item in enumerate(items)
        ]
        self._lanes.queues[lane].push(call.tickets)
        self._fill_slot()
        try:
            async with asyncio.timeout(deadline.remaining_s()):
                await call.done
        except TimeoutError:
            self._abandon(call, "expired")
        except asyncio.CancelledError:
            self._abandon(call, "cancelled")
            raise
        ended_at = self._clock.monotonic()
        started_at = ended_at if call.started_at is None else call.started_at
        outcomes = tuple(_expired() if outcome is None else outcome for outcome in call.outcomes)
        return SubmitOutcome(
            outcomes=outcomes, queue_s=started_at - call.submitted_at, inference_s=ended_at - started_at
        )

    async def aclose(self) -> None:
        """Refuse new work, end what waits with `ShuttingDown`, let the running pass finish, stop the thread."""
        self._closing = True
        self._take_back()
        self._fail_waiting(ShuttingDown("this server is draining; use another one"))
        try:
            async with asyncio.timeout(self._limits.close_timeout_seconds):
                while self._running is not None or self._ready is not None:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:  # a device that hangs: its callers must not
            if self._running is not None:
                for ticket in self._running.tickets:
                    self._end(ticket, ShuttingDown("the device did not answer while this server was draining"))
        self._worker.stop()

    # --- on the event loop

    def _fill_slot(self) -> None:
        """Keep the next pass ready: cut one if there is none, recut one that has room or is of the wrong lane."""
        if self._closing or self._recut_scheduled:
            return
        if self._ready is None:
            self._offer_next()
        elif self._could_improve(self._ready):
            self._recut_scheduled = True
            self._loop.call_soon(self._recut)

    def _recut(self) -> None:
        self._recut_scheduled = False
        if self._closing:
            return
        self._take_back()
        self._offer_next()

    def _could_improve(self, ready: Pass) -> bool:
        if self._lanes.next_lane() is Lane.INTERACTIVE and ready.lane is Lane.BULK:
            return True
        room = (
            ready.batch.padded_tokens < self._limits.budget_tokens and ready.batch.size < self._limits.max_batch_items
        )
        return room and len(self._lanes.queues[ready.lane]) > 0

    def _take_back(self) -> None:
        """Return the pass in the slot to its lane, unless the device has taken it meanwhile."""
        work = self._worker.retract()
        if work is not None:
            self._ready = None
            self._lanes.give_back(list(work.tickets))

    def _offer_next(self) -> None:
        if self._ready is not None:
            return
        while tickets := self._lanes.cut():
            alive = [ticket for ticket in tickets if not self._drop_expired(ticket)]
            if alive:
                self._ready = prepare(alive)
                self._worker.offer(self._ready)
                break
        self._observer.backlog(self.backlog_seconds())

    def _drop_expired(self, ticket: Ticket) -> bool:
        call = _call_of(ticket)
        if call.abandoned:
            return True
        if call.deadline.expired:
            self._end(ticket, _expired(), "expired")
            return True
        return False

    def _taken(self, work: Pass) -> None:
        if self._ready is work:
            self._ready = None
        self._running, self._running_since = work, self._clock.monotonic()
        self._lanes.started(work.lane)
        for ticket in work.tickets:
            call = _call_of(ticket)
            if call.started_at is None:
                call.started_at = self._running_since
                self._observer.call_started(call.lane, call.started_at - call.submitted_at)
        if not self._recut_scheduled:
            self._offer_next()

    def _ended(self, ended: PassEnded) -> None:
        self._running = None
        batch = ended.work.batch
        if ended.clean:
            self._cost.observe(batch.padded_tokens, ended.seconds)
        self._observer.pass_ended(
            items=batch.size, real_tokens=sum(ticket.tokens for ticket in ended.work.tickets),
            padded_tokens=batch.padded_tokens, seconds=ended.seconds,
        )  # fmt: skip
        for ticket, outcome in zip(ended.work.tickets, ended.outcomes, strict=True):
            self._lost = self._lost or isinstance(outcome, DeviceLost)
            self._end(ticket, outcome)
        if self._lost:
            self._take_back()
            self._fail_waiting(DeviceLost("the accelerator was lost; this server is draining, use another one"))
        if self._ready is None and not self._closing and not self._lost:
            self._offer_next()
        self._idle.set()
        self._observer.backlog(self.backlog_seconds())

    def _end(self, ticket: Ticket, outcome: ItemOutput | ServiceError, how: ItemEnd | None = None) -> None:
        call = _call_of(ticket)
        if call.abandoned or call.outcomes[ticket.index] is not None:
            return
        call.outcomes[ticket.index] = outcome
        call.pending -= 1
        self._observer.items_ended(how or ("failed" if isinstance(outcome, ServiceError) else "done"), 1)
        if call.pending == 0 and not call.done.done():
            call.done.set_result(None)

    def _abandon(self, call: _Call, how: ItemEnd) -> None:
        """Nobody waits any more: what still queues is dropped, what the device has in hand is ignored when it comes."""
        if call.pending:
            self._observer.items_ended(how, call.pending)
        call.abandoned = True
        if self._ready is not None and any(ticket.call is call for ticket in self._ready.tickets):
            self._take_back()
        for ticket in call.tickets:
            self._lanes.queues[call.lane].discard(ticket)
        if not self._closing:
            self._offer_next()

    def _fail_waiting(self, error: ServiceError) -> None:
        for queue in self._lanes.queues.values():
            while window := queue.window():
                for ticket in window:
                    queue.discard(ticket)
                    self._end(ticket, error)

    # --- estimates

    def _seconds_of(self, tokens: int) -> float:
        return self._cost.seconds(tokens, passes=-(-tokens // self._limits.budget_tokens))

    def _running_remainder_s(self) -> float:
        if self._running is None:
            return 0.0
        spent_s = self._clock.monotonic() - self._running_since
        return max(0.0, self._seconds_of(self._running.batch.padded_tokens) - spent_s)

    def _from_thread(self, function: Callable[[_T], None], argument: _T) -> None:
        self._loop.call_soon_threadsafe(function, argument)


def _call_of(ticket: Ticket) -> _Call:
    assert isinstance(ticket.call, _Call)
    return ticket.call


def _expired() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline passed before the work was done")
