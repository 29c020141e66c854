"""When a failed attempt is repeated, and after how long."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc

from pergamon.client.errors import PergamonError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how fast calls that are safe to repeat are repeated.

    Repeated are UNAVAILABLE, and RESOURCE_EXHAUSTED where the server sent a RetryInfo; its delay is always waited out.
    INTERNAL is repeated where it names no reason: then it is not the server that failed but something before it (the
    proxy of Ray Serve says so when it has lost the replica).
    Without one the delay grows by `multiplier` from `initial_backoff_s` to `max_backoff_s`. `jitter` is the fraction of
    the delay that chance takes away from the back-off, or adds to the delay of a RetryInfo. `max_attempts=1` switches
    retries off.
    """

    max_attempts: int = 5
    initial_backoff_s: float = 0.2
    max_backoff_s: float = 5.0
    multiplier: float = 2.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts is {self.max_attempts}; it must be at least 1")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is {self.jitter}; it must be between 0 and 1")

    def delay_s(self, error: PergamonError, *, attempt: int, left_s: float, chance: float) -> float | None:
        """Seconds to wait after attempt number `attempt` (from 1) failed; None: give up.

        `left_s` is what is left of the deadline: a delay that does not fit is not begun. `chance` is uniform in 0 to 1.
        """
        asked = error.retry_after_s
        overloaded = error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and asked is not None
        lost = error.code is grpc.StatusCode.UNAVAILABLE or (
            error.code is grpc.StatusCode.INTERNAL and not error.reason
        )
        if attempt >= self.max_attempts or not (overloaded or lost):
            return None
        if asked is None:
            backoff = min(self.initial_backoff_s * self.multiplier ** (attempt - 1), self.max_backoff_s)
            delay = backoff * (1 - self.jitter * chance)
        else:
            delay = asked + max(asked, self.initial_backoff_s) * self.jitter * chance
        return delay if delay < left_s else None


def _chance() -> float:
    return random.random()  # noqa: S311  spreads callers, guards no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Where time and chance come from: a monotonic clock in seconds, a sleep, a uniform number in 0 to 1."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = _chance
