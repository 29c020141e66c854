"""Time as a dependency, so that tests decide what time it is."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """`monotonic` in seconds for durations and deadlines; `now` as an aware UTC time for records."""

    def monotonic(self) -> float: ...

    def now(self) -> datetime: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(slots=True)
class FakeClock:
    """Stands still until told otherwise."""

    seconds: float = 1_000.0
    start: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    origin: float = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.start.timestamp() + self.seconds - self.origin, UTC)

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock after which nobody waits for the answer any more."""

    at: float
    clock: Clock

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> "Deadline":
        return cls(clock.monotonic() + seconds, clock)

    def remaining_s(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at - self.clock.monotonic())

    @property
    def expired(self) -> bool:
        return self.clock.monotonic() >= self.at

    def within(self, seconds: float) -> "Deadline":
        """The deadline of a part that should take at most `seconds`: whichever ends first."""
        return Deadline.after(self.capped(seconds), self.clock)

    def capped(self, seconds: float) -> float:
        """Seconds to grant a step that should take at most `seconds`: whichever ends first."""
        return min(seconds, self.remaining_s())
