"""Batches the items of all callers into passes within a budget of tokens, and ends every item exactly once."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from services.common.clock import Clock, Deadline
from services.common.errors import DeadlineExceeded, ServiceError
from services.inference.admission import Admission, BatcherLimits, PassBudget
from services.inference.backend import Backend
from services.inference.cost import CostModel
from services.inference.device import Device
from services.inference.errors import DeviceLost, ShuttingDown
from services.inference.observer import BatcherObserver, ItemEnd, PassReport, SilentObserver
from services.inference.queueing import Lanes, PassLimits, Ticket, cut
from services.inference.types import Encoded, ItemOutput, Lane, Outputs
from services.inference.worker import Pass, PassEnded, prepare

_T = TypeVar("_T")

#: A pass that is filled by this share is not cut anew for the sake of what came since.
_FULL = 0.9
#: Whose calls are no traffic that bulk passes are kept short for: checks of health come all the time.
HEALTH_CLIENT = "(health)"
#: A call is given up in the queue when its time is below this share of what its own work alone would take.
_HOPELESS = 0.7
#: A device hangs when a pass takes so long, and so many times as long as was to be expected.
_HANGS_AFTER_S, _HANGS_AFTER_TIMES = 30.0, 10.0
_GONE = "the accelerator was lost; this server is draining, use another one"
_DRAINING = "this server is draining; use another one"


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
    tickets: set[Ticket] = field(default_factory=set[Ticket])
    pending: int = 0
    tokens_left: int = 0
    started_at: float | None = None
    abandoned: bool = False


class Batcher:
    """A queue before the devices that hold one model. Create and use it on one event loop; each device has a thread.

    An idle device goes at once; while all are busy the next passes are kept ready, and recut as long as they have room
    or the wrong lane. Refusals (`Overloaded`, `DeadlineUnreachable`) come before any work and by one rule for calls of
    any size: the estimated seconds until the call would start. Clients take turns by the tokens they use. A text that
    is waiting or running already is not computed again for those who ask for the same.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        *,
        limits: BatcherLimits,
        clock: Clock,
        observer: BatcherObserver | None = None,
        known_passes: Sequence[tuple[int, float]] = (),
    ) -> None:
        """`known_passes` are (padded tokens, seconds) measured before, so that estimates hold from the first call."""
        self._limits = limits
        self._clock = clock
        self._observer: BatcherObserver = observer or SilentObserver()
        self._loop = asyncio.get_running_loop()
        self._cost = CostModel()
        for padded_tokens, seconds in known_passes:
            self._cost.observe(padded_tokens, seconds)
        self._lanes = Lanes(bulk_every=limits.bulk_every_passes)
        self._in_flight: dict[object, Ticket] = {}
        self._padding_free = all(backend.padding_free for backend in backends)
        self._budget = PassBudget(limits.budget_tokens)
        self._interactive_until = float("-inf")
        self._recut_scheduled = False
        self._closing = False
        self._lost = False
        self._idle = asyncio.Event()
        self._devices = [
            Device(backend, on_taken=self._from_thread(self._taken), on_ended=self._from_thread(self._ended))
            for backend in backends
        ]
        self._admission = Admission(
            lanes=self._lanes, devices=self._devices, cost=self._cost, budget=self._budget, limits=limits, clock=clock
        )
        self._observer.follow_backlog(self.backlog_seconds)

    # --- what callers see

    @property
    def limits(self) -> BatcherLimits:
        return self._limits

    @property
    def healthy(self) -> bool:
        """Whether all devices do their work. One that hangs is seen by its pass: others may answer every probe."""
        if self._lost or self._closing:
            return False
        return all(device.alive and not self._hangs(device) for device in self._devices)

    @property
    def lost(self) -> bool:
        """Whether a device is gone for this process."""
        return self._lost

    def backlog_seconds(self) -> float:
        """Estimated seconds until all that waits would have started."""
        return self._admission.backlog_seconds(Lane.BULK)

    def admit(self, lane: Lane, deadline: Deadline, *, items: int = 1, tokens: int = 0, client: str = "") -> None:
        """Raise if work submitted now would be refused. Cheap; ask before tokenising."""
        if self._lost:
            raise self._refused(DeviceLost(_GONE), items)
        if self._closing:
            raise self._refused(ShuttingDown(_DRAINING), items)
        try:
            self._admission.check(lane, deadline, tokens=tokens, client=client)
        except ServiceError as error:
            raise self._refused(error, items) from None

    async def submit(
        self, items: Sequence[Encoded], *, outputs: Outputs, lane: Lane, deadline: Deadline, client: str = ""
    ) -> SubmitOutcome:
        """Run `items` and wait for all of them; `client` is whose turn it is that they take.

        Raises `Overloaded`, `DeadlineUnreachable`, `ShuttingDown` or `DeviceLost` before any work; later failures are
        outcomes of their items. Cancelling the caller drops what has not reached the device.
        """
        if not items:
            return SubmitOutcome(outcomes=(), queue_s=0.0, inference_s=0.0)
        tokens = sum(item.token_count for item in items)
        self.admit(lane, deadline, items=len(items), tokens=tokens, client=client)
        now = self._admission.let_in(tokens)
        if lane is Lane.INTERACTIVE and client != HEALTH_CLIENT:
            self._interactive_until = now + self._limits.interactive_memory_seconds
        call = _Call(
            done=self._loop.create_future(), deadline=deadline, submitted_at=now, lane=lane,
            outcomes=[None] * len(items), pending=len(items), tokens_left=tokens,
        )  # fmt: skip
        self._enqueue(call, items, outputs, client)
        self._fill_slots()
        try:
            async with asyncio.timeout(deadline.remaining_s()):
                await call.done
        except TimeoutError:
            self._abandon(call, "expired")
        except asyncio.CancelledError:
            self._abandon(call, "cancelled")
            raise
        finally:
            call.tickets.clear()  # each knows the call: a circle, which would keep the outputs in memory
        ended_at = self._clock.monotonic()
        started_at = ended_at if call.started_at is None else call.started_at
        outcomes = tuple(_expired() if outcome is None else outcome for outcome in call.outcomes)
        return SubmitOutcome(
            outcomes=outcomes, queue_s=started_at - call.submitted_at, inference_s=ended_at - started_at
        )

    async def aclose(self) -> None:
        """Refuse new work, end what waits with `ShuttingDown`, let running passes finish, stop the threads."""
        self._closing = True
        self._take_back()
        self._fail_waiting(ShuttingDown(_DRAINING))
        try:
            async with asyncio.timeout(self._limits.close_timeout_seconds):
                while any(device.busy for device in self._devices):
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:  # a device that hangs: its callers must not
            for device in self._devices:
                for ticket in device.running.tickets if device.running else ():
                    self._end(ticket, ShuttingDown("the device did not answer while this server was draining"))
        for device in self._devices:
            device.stop()

    def _hangs(self, device: Device) -> bool:
        if device.running is None:
            return False
        expected_s = self._cost.seconds(device.running.tokens)
        return self._clock.monotonic() - device.since > max(_HANGS_AFTER_S, _HANGS_AFTER_TIMES * expected_s)

    # --- in

    def _enqueue(self, call: _Call, items: Sequence[Encoded], outputs: Outputs, client: str) -> None:
        queue = self._lanes.queues[call.lane]
        shared = 0
        for index, item in enumerate(items):
            key = (item.ids.tobytes(), item.type_ids.tobytes(), outputs)
            known = self._in_flight.get(key)
            if known is not None:
                known.waiters.append((call, index))
                call.tickets.add(known)
                shared += 1
                self._note_start(call, known)
                self._hasten(known, call.lane, client)
                continue
            ticket = Ticket(
                key=key, encoded=item, outputs=outputs, lane=call.lane, client=client, waiters=[(call, index)]
            )
            self._in_flight[key] = ticket
            call.tickets.add(ticket)
            queue.push((ticket,))
        if shared:
            self._observer.shared(shared)

    def _hasten(self, ticket: Ticket, lane: Lane, client: str) -> None:
        """Let a waiting item go at the turn of the newcomer who asks for the same, where that comes earlier."""
        if ticket.lane is Lane.BULK and lane is Lane.INTERACTIVE and not ticket.queued:
            self._take_back()  # it may be in a pass that is yet to wait for interactive ones
        if not ticket.queued:
            return
        queues = self._lanes.queues
        earlier_lane = ticket.lane is Lane.BULK and lane is Lane.INTERACTIVE
        if earlier_lane or (ticket.lane is lane and queues[lane].turn_of(client) < ticket.turn):
            queues[ticket.lane].discard(ticket)
            ticket.lane, ticket.client = lane, client
            queues[lane].push((ticket,))

    # --- passes, on the event loop

    def _fill_slots(self) -> None:
        """Keep the next passes ready: cut what is missing, recut what has room or is of the wrong lane."""
        if self._closing or self._recut_scheduled:
            return
        if any(device.ready is None for device in self._devices):
            self._offer_next()
        if any(device.ready is not None and self._could_improve(device.ready) for device in self._devices):
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
        limits = self._limits_of(ready.lane)
        room = ready.tokens < limits.budget_tokens * _FULL and ready.batch.size < limits.max_items
        return room and len(self._lanes.queues[ready.lane]) > 0

    def _take_back(self) -> None:
        """Return the passes in the slots to their lanes, unless a device has taken them meanwhile."""
        for device in self._devices:
            work = device.retract()
            if work is not None:
                self._lanes.give_back(work.tickets)

    def _offer_next(self) -> None:
        """Cut passes for the empty slots, idle devices first."""
        for device in sorted(self._devices, key=lambda device: device.running is not None):
            if device.ready is not None:
                continue
            work = self._cut()
            if work is None:
                break
            device.offer(work)

    def _cut(self) -> Pass | None:
        """The next pass, without what nobody waits for any more; None if nothing waits."""
        while (lane := self._lanes.next_lane()) is not None:
            tickets = cut(self._lanes.queues[lane], self._limits_of(lane))
            alive = [ticket for ticket in tickets if self._is_wanted(ticket)]
            if alive:
                return prepare(alive, padding_free=self._padding_free)
        return None

    def _limits_of(self, lane: Lane) -> PassLimits:
        """While there is interactive traffic, a bulk pass is kept short: who comes in the midst of it has to wait."""
        budget = self._budget.tokens
        if lane is Lane.BULK and self._clock.monotonic() < self._interactive_until:
            budget = min(budget, self._cost.tokens_within(self._limits.bulk_pass_seconds, default=budget))
        return PassLimits(budget_tokens=budget, max_items=self._limits.max_batch_items, padding_free=self._padding_free)

    def _is_wanted(self, ticket: Ticket) -> bool:
        wanted = False
        for waiter, _ in ticket.waiters:
            call = _call_of(waiter)
            if call.abandoned:
                continue
            if self._is_hopeless(call):
                self._give_up(call)
            else:
                wanted = True
        if not wanted:
            self._end(ticket, _expired(), "expired")
        return wanted

    def _is_hopeless(self, call: _Call) -> bool:
        """Whether its time is over, or would be even if nobody else had work. At the start of a call that is what
        admission says; it lets some in to learn whether it still holds."""
        left_s = call.deadline.remaining_s()
        if left_s <= 0.0:
            return True
        waited_s = self._clock.monotonic() - call.submitted_at
        alone_s = self._cost.seconds(call.tokens_left) / len(self._devices)
        return waited_s > left_s and left_s < alone_s * _HOPELESS

    def _give_up(self, call: _Call) -> None:
        """All of it: a part of an answer that comes too late is work lost for those who could be in time."""
        self._drop(call, "expired")
        if not call.done.done():
            call.done.set_result(None)

    def _taken(self, device: Device, work: Pass) -> None:
        now = self._clock.monotonic()
        device.started(work, now)
        self._lanes.started(work.lane, work.tickets)
        for ticket in work.tickets:
            for waiter, _ in ticket.waiters:
                self._mark_started(_call_of(waiter), now)
        if not self._recut_scheduled and not self._closing:
            self._offer_next()

    def _note_start(self, call: _Call, ticket: Ticket) -> None:
        """A call whose item another has on the device already does not queue for it."""
        if any(d.running is not None and ticket in d.running.tickets for d in self._devices):
            self._mark_started(call, self._clock.monotonic())

    def _mark_started(self, call: _Call, now: float) -> None:
        if call.started_at is None:
            call.started_at = now
            self._observer.call_started(call.lane, now - call.submitted_at)

    def _ended(self, device: Device, ended: PassEnded) -> None:
        device.ended()
        self._learn(ended)
        done = failed = 0
        for ticket, outcome in zip(ended.work.tickets, ended.outcomes, strict=True):
            if isinstance(outcome, ServiceError):
                self._lost = self._lost or isinstance(outcome, DeviceLost)
                failed += self._hand_out(ticket, outcome)
            else:
                done += self._hand_out(ticket, outcome)
        if done:
            self._observer.items_ended("done", done)
        if failed:
            self._observer.items_ended("failed", failed)
        if self._lost:
            self._take_back()
            self._fail_waiting(DeviceLost(_GONE))
            self._observer.device_lost()
        elif not self._closing:
            self._offer_next()
        self._idle.set()

    def _learn(self, ended: PassEnded) -> None:
        """What a pass cost, and whether the memory bears passes of this size."""
        work = ended.work
        if ended.clean:
            self._cost.observe(work.tokens, ended.seconds)
            self._budget.fitted()
        if ended.out_of_memory:
            self._budget.exceeded(work.tokens)
        target_s = self._limits.bulk_pass_seconds
        self._observer.pass_ended(
            PassReport(
                lane=work.lane, items=work.batch.size, real_tokens=work.real_tokens,
                padded_tokens=work.batch.padded_tokens, seconds=ended.seconds, out_of_memory=ended.out_of_memory,
                one_long_item=work.batch.size == 1 and self._cost.seconds(work.tokens) > target_s,
            )
        )  # fmt: skip

    # --- out

    def _end(self, ticket: Ticket, error: ServiceError, how: ItemEnd = "failed") -> None:
        if ended := self._hand_out(ticket, error):
            self._observer.items_ended(how, ended)

    def _hand_out(self, ticket: Ticket, outcome: ItemOutput | ServiceError) -> int:
        """Give the outcome to all who wait for the item, and say how many they are."""
        if self._in_flight.get(ticket.key) is ticket:
            del self._in_flight[ticket.key]
        ended = 0
        for waiter, index in ticket.waiters:
            call = _call_of(waiter)
            if call.abandoned or call.outcomes[index] is not None:
                continue
            call.outcomes[index] = outcome
            call.pending -= 1
            call.tokens_left -= ticket.tokens
            ended += 1
            if call.pending == 0 and not call.done.done():
                call.done.set_result(None)
        return ended

    def _abandon(self, call: _Call, how: ItemEnd) -> None:
        """This caller waits no more: what only it wanted is dropped from the queue, or ignored when it comes."""
        if call.abandoned:
            return
        alone = self._drop(call, how)
        if any(not ticket.queued and self._in_flight.get(ticket.key) is ticket for ticket in alone):
            self._take_back()
            for ticket in alone:
                self._forget(ticket)
        if not self._closing:
            self._offer_next()

    def _drop(self, call: _Call, how: ItemEnd) -> list[Ticket]:
        """Take what only this call wanted out of the queue; returns that, some of which may be in passes already."""
        if call.pending:
            self._observer.items_ended(how, call.pending)
        call.abandoned = True
        alone = [t for t in call.tickets if all(_call_of(waiter).abandoned for waiter, _ in t.waiters)]
        for ticket in alone:
            self._forget(ticket)
        return alone

    def _forget(self, ticket: Ticket) -> None:
        if self._lanes.queues[ticket.lane].discard(ticket) and self._in_flight.get(ticket.key) is ticket:
            del self._in_flight[ticket.key]

    def _fail_waiting(self, error: ServiceError) -> None:
        for queue in self._lanes.queues.values():
            while window := queue.window():
                for ticket in window:
                    queue.discard(ticket)
                    self._end(ticket, error)

    def _refused(self, error: ServiceError, items: int) -> ServiceError:
        self._observer.items_ended("refused", items)
        self._observer.refused(error.error_reason, items)
        return error

    # --- estimates

    def _from_thread(self, function: Callable[[Device, _T], None]) -> Callable[[Device, _T], None]:
        def tell(device: Device, argument: _T) -> None:
            self._loop.call_soon_threadsafe(function, device, argument)

        return tell


def _call_of(waiter: object) -> _Call:
    assert isinstance(waiter, _Call)
    return waiter


def _expired() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline passed before the work was done")
