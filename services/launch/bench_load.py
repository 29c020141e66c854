"""The load generator: calls in a closed loop (clients that wait for answers) or an open one (arrivals that do not).

A closed loop flatters a server that stalls, because its clients stall with it. The open loop does not: its calls
have an intended time, drawn as a Poisson process, and their latency counts from there (Tene, "coordinated omission").
"""

import asyncio
import random
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from pergamon.client import PergamonError, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One call to make, drawn in advance of its time: `send` makes it and returns how many texts were answered.

    `label` groups calls in the report (a priority); `texts` is what the call carries.
    """

    label: str
    texts: int
    send: Callable[[], Awaitable[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """How calls are made. `rate_per_s` above 0: an open loop, else a closed one of `clients`.

    The measurement ends after `duration_s` or, where `calls` is above 0, after so many calls. An open loop has no more
    than `max_outstanding` calls in the air; those beyond are counted as not sent. `timeout_s` is what the calls were
    given: a call without an answer `hung_after_s` after that has hung. Clients of a closed loop that are refused wait
    as long as the server asks them to, as clients should, but no longer than `longest_pause_s`.
    """

    clients: int = 8
    rate_per_s: float = 0.0
    duration_s: float = 10.0
    calls: int = 0
    max_outstanding: int = 1024
    timeout_s: float = 30.0
    seed: int = 0
    longest_pause_s: float = 5.0
    hung_after_s: float = 5.0


@dataclass(slots=True)
class Group:
    """The ended calls of one label and reason; `texts_in_window` counts the answers of those that ended in time."""

    latency_s: "array[float]" = field(default_factory=lambda: array("d"))
    texts: int = 0
    calls_in_window: int = 0
    texts_in_window: int = 0


@dataclass(slots=True)
class Measured:
    """What happened. `groups` by (label, reason); an empty reason is success. `window_s`: what rates refer to."""

    window_s: float = 0.0
    groups: dict[tuple[str, str], Group] = field(default_factory=dict[tuple[str, str], Group])
    sent: int = 0
    ended: int = 0
    not_sent: int = 0
    hung: int = 0
    failed_texts: int = 0
    #: Open loop: how late the generator itself was.
    lag_s: "array[float]" = field(default_factory=lambda: array("d"))
    cpu_s: float = 0.0
    wall_s: float = 0.0


async def run_load(
    plan: LoadPlan, tickets: Iterator[Ticket], measured: Measured, timing: Timing | None = None
) -> Measured:
    """Make the calls of `tickets` by `plan`, filling `measured` as they end. Raises what is no PergamonError."""
    return await _Run(plan, tickets, measured, timing or Timing()).run()


class _Run:
    def __init__(self, plan: LoadPlan, tickets: Iterator[Ticket], measured: Measured, timing: Timing) -> None:
        self._plan = plan
        self._tickets = tickets
        self._measured = measured
        self._now, self._sleep = timing.now, timing.sleep
        self._started = 0.0
        self._window_ends = float("inf")
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> Measured:
        plan, measured = self._plan, self._measured
        cpu, self._started = time.process_time(), self._now()
        self._window_ends = float("inf") if plan.calls else self._started + plan.duration_s
        try:
            if plan.rate_per_s > 0:
                await self._arrive()
            else:
                clients = min(plan.clients, plan.calls or plan.clients)
                self._tasks = {asyncio.create_task(self._client()) for _ in range(clients)}
            await self._wait_for_all()
        finally:
            await self._cancel_all()
        ended = self._now()
        measured.wall_s, measured.cpu_s = ended - self._started, time.process_time() - cpu
        measured.window_s = measured.wall_s if plan.calls else plan.duration_s
        return measured

    async def _client(self) -> None:
        while self._may_send(self._now()):
            ticket = next(self._tickets)
            self._measured.sent += 1
            pause_s = await self._make(ticket, self._now())
            if pause_s:
                left_s = self._window_ends - self._now()
                await self._sleep(max(0.0, min(pause_s, left_s, self._plan.longest_pause_s)))

    async def _arrive(self) -> None:
        rng, due = random.Random(self._plan.seed), self._started  # noqa: S311 - guards nothing
        while True:
            due += rng.expovariate(self._plan.rate_per_s)
            if not self._may_send(due):
                return
            ticket = next(self._tickets)
            wait_s = due - self._now()
            await self._sleep(max(0.0, wait_s))  # 0 too: what answers must get its turn
            self._measured.sent += 1
            if len(self._tasks) >= self._plan.max_outstanding:
                self._measured.not_sent += 1
                continue
            self._measured.lag_s.append(max(0.0, self._now() - due))
            task = asyncio.create_task(self._make_once(ticket, due))
            self._tasks.add(task)
            task.add_done_callback(self._drop)

    async def _make_once(self, ticket: Ticket, due: float) -> None:
        await self._make(ticket, due)

    def _drop(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is None:  # what failed is kept, to be raised at the end
            self._tasks.discard(task)

    def _may_send(self, at: float) -> bool:
        return self._measured.sent < self._plan.calls if self._plan.calls else at < self._window_ends

    async def _make(self, ticket: Ticket, since: float) -> float:
        """Make the call and book it. Returns the seconds that the server asked to wait, 0 for none."""
        pause_s, reason, answered = 0.0, "", 0
        try:
            answered = await ticket.send()
        except PergamonError as error:
            reason, pause_s = error.reason or error.code.name, error.retry_after_s or 0.0
        now = self._now()
        measured = self._measured
        group = measured.groups.setdefault((ticket.label, reason), Group())
        group.latency_s.append(now - since)
        group.texts += answered
        measured.ended += 1
        if not reason:
            measured.failed_texts += ticket.texts - answered
        if now <= self._window_ends:
            group.calls_in_window += 1
            group.texts_in_window += answered
        return pause_s

    async def _wait_for_all(self) -> None:
        """Until every call has ended, or none has for longer than any may take."""
        measured, grace_s = self._measured, self._plan.timeout_s + self._plan.longest_pause_s + self._plan.hung_after_s
        while self._tasks:
            before = measured.ended
            done, waiting = await asyncio.wait(self._tasks, timeout=grace_s, return_when=asyncio.FIRST_EXCEPTION)
            self._tasks = set(waiting)
            for task in done:
                task.result()
            if waiting and measured.ended == before:
                measured.hung += len(waiting)
                return

    async def _cancel_all(self) -> None:
        """What is left: calls that hung, or all of them when one failed as none should."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
