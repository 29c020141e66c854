"""What a batcher tells about itself; services connect it to their metrics. Everything is called on the event loop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from services.common.errors import Reason
from services.inference.types import Lane

ItemEnd = Literal["done", "failed", "cancelled", "expired", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """One forward pass. `one_long_item`: a single text that takes longer than a bulk pass should."""

    lane: Lane
    items: int
    real_tokens: int
    padded_tokens: int
    seconds: float
    out_of_memory: bool
    one_long_item: bool


class BatcherObserver(Protocol):
    def pass_ended(self, report: PassReport) -> None: ...

    def call_started(self, lane: Lane, queue_s: float) -> None: ...

    def items_ended(self, outcome: ItemEnd, count: int) -> None: ...

    def refused(self, reason: Reason, items: int) -> None: ...

    def shared(self, items: int) -> None:
        """So many items were the same as others in flight, and were not computed again."""
        ...

    def tokenized(self, seconds: float, truncated: int) -> None:
        """One call was tokenised; so many of its texts were cut."""
        ...

    def device_lost(self) -> None:
        """Nothing can be computed in this process any more: the server should end, so that another takes its place."""
        ...

    def follow_backlog(self, seconds: Callable[[], float]) -> None:
        """`seconds` tells the estimated time until all that waits would be done, at any moment and from any thread."""
        ...


class SilentObserver:
    def pass_ended(self, report: PassReport) -> None: ...

    def call_started(self, lane: Lane, queue_s: float) -> None: ...

    def items_ended(self, outcome: ItemEnd, count: int) -> None: ...

    def refused(self, reason: Reason, items: int) -> None: ...

    def shared(self, items: int) -> None: ...

    def tokenized(self, seconds: float, truncated: int) -> None: ...

    def device_lost(self) -> None: ...

    def follow_backlog(self, seconds: Callable[[], float]) -> None: ...
