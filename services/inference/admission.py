"""Whether work is let in: how long it would wait, by what waits already and what passes take."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.common.clock import Clock, Deadline
from services.common.errors import Overloaded
from services.inference.cost import CostModel, seconds_until_free
from services.inference.device import Device
from services.inference.errors import DeadlineUnreachable
from services.inference.queueing import Lanes
from services.inference.types import Lane

#: An estimate that forbids work of a size is put to the test so often.
_TRY_EVERY_S = 10.0
#: Waits turn out longer than estimated when the machine has other work; who would just make it may not.
_WAIT_MARGIN = 1.25
#: A budget that was halved for want of memory is doubled again after so many passes that ran as one.
_CLEAN_PASSES_TO_GROW = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherLimits:
    """`budget_tokens` padded tokens of a pass; the rest bounds the queue. See `InferenceSettings`."""

    budget_tokens: int = 2048
    max_batch_items: int = 256
    bulk_every_passes: int = 4
    bulk_pass_seconds: float = 0.020
    interactive_memory_seconds: float = 5.0
    max_backlog_seconds: float = 10.0
    max_queued_items: int = 65_536
    close_timeout_seconds: float = 30.0


class PassBudget:
    """Padded tokens that a pass may have: as configured, or fewer while the device has no memory for so many."""

    def __init__(self, most: int) -> None:
        self.tokens = most
        self._most = most
        self._fitted = 0

    def passes_of(self, tokens: int) -> int:
        return -(-tokens // self.tokens)

    def fitted(self) -> None:
        """A pass ran as one."""
        self._fitted += 1
        if self.tokens < self._most and self._fitted >= _CLEAN_PASSES_TO_GROW:
            self.tokens = min(self._most, self.tokens * 2)
            self._fitted = 0

    def exceeded(self, tokens: int) -> None:
        """A pass of `tokens` was too much."""
        self.tokens = max(1, min(self.tokens, tokens // 2))
        self._fitted = 0


class Admission:
    """One rule for calls of any size: the estimated seconds until the call would start."""

    def __init__(
        self,
        *,
        lanes: Lanes,
        devices: Sequence[Device],
        cost: CostModel,
        budget: PassBudget,
        limits: BatcherLimits,
        clock: Clock,
    ) -> None:
        """What is given is looked at with every call, and changed by others."""
        self._lanes = lanes
        self._devices = devices
        self._cost = cost
        self._budget = budget
        self._limits = limits
        self._clock = clock
        self._started_at = clock.monotonic()
        #: When work was last let in, by the bits of its number of tokens.
        self._let_in: dict[int, float] = {}

    def check(self, lane: Lane, deadline: Deadline, *, tokens: int, client: str) -> None:
        """Raises `Overloaded` with an estimate of when to come again, or `DeadlineUnreachable` where the work alone
        takes longer than the deadline leaves."""
        limit_s = self._limits.max_backlog_seconds
        wait_s = self.backlog_seconds(lane, client=client, tokens=tokens)
        waiting, most_waiting = len(self._lanes), self._limits.max_queued_items
        if wait_s > limit_s or waiting > most_waiting:
            retry_after_s = max(0.1, wait_s - limit_s / 2)
            what = f"work would wait {wait_s:.1f} s, the limit is {limit_s:.1f} s"
            if wait_s <= limit_s:
                what = f"{waiting} texts wait, the limit is {most_waiting}"
            raise Overloaded(f"{what}: retry in {retry_after_s:.1f} s", retry_after_s=retry_after_s)
        own_s, left_s = self._own_seconds(tokens), deadline.remaining_s()
        need_s = wait_s * _WAIT_MARGIN + own_s
        if left_s > 0.0 and (need_s <= left_s or self._may_try(tokens)):
            return
        if own_s <= left_s and wait_s > 0.0:  # alone it could be done in time: others are the reason
            retry_after_s = max(0.1, need_s - left_s)
            raise Overloaded(
                f"work would wait about {wait_s:.2f} s, and the deadline leaves {left_s:.2f} s: "
                f"retry in {retry_after_s:.1f} s, or allow more time",
                retry_after_s=retry_after_s,
            )
        raise DeadlineUnreachable(
            f"the work itself needs about {own_s:.2f} s, the deadline leaves {left_s:.2f} s: "
            "send less or allow more time"
        )

    def let_in(self, tokens: int) -> float:
        """Note that work of `tokens` came in, and say when, by the clock."""
        now = self._let_in[tokens.bit_length()] = self._clock.monotonic()
        return now

    def backlog_seconds(self, lane: Lane, *, client: str | None = None, tokens: int = 0) -> float:
        """Estimated seconds until work of `tokens` of `client` would start in `lane`; None: after all that waits."""
        queues = self._lanes.queues
        before = queues[lane].tokens if client is None else queues[lane].tokens_before(client, tokens)
        if lane is Lane.INTERACTIVE:  # of BULK only its guaranteed share comes before
            before += min(queues[Lane.BULK].tokens, before // max(1, self._limits.bulk_every_passes - 1))
        else:
            before += queues[Lane.INTERACTIVE].tokens
        busy_s: list[float] = []
        for device in self._devices:
            ready, running = device.ready, device.running
            if ready is not None and (lane is Lane.BULK or ready.lane is Lane.INTERACTIVE):
                before += ready.tokens
            spent_s = self._clock.monotonic() - device.since
            busy_s.append(0.0 if running is None else max(0.0, self._cost.seconds(running.tokens) - spent_s))
        return seconds_until_free(self._cost.seconds(before, self._budget.passes_of(before)), busy_s)

    def _own_seconds(self, tokens: int) -> float:
        """From the start of work to its end: on no more devices than it makes passes."""
        passes = self._budget.passes_of(tokens)
        return self._cost.seconds(tokens, passes) / max(1, min(passes, len(self._devices)))

    def _may_try(self, tokens: int) -> bool:
        """Whether nothing is to be done and nothing of about this size was let in for a while: what passes take may
        have changed, and who refuses all work never learns."""
        if len(self._lanes) or any(device.busy for device in self._devices):
            return False
        last_s = self._let_in.get(tokens.bit_length(), self._started_at)
        return self._clock.monotonic() - last_s >= _TRY_EVERY_S
