"""How many replicas of an inference service there should be, by the work that its replicas report.

Serve copies this file by value to its controller, so it uses nothing but the standard library.
"""

from collections.abc import Mapping
from typing import Any, Protocol

_BUSY, _BACKLOG_SECONDS = "busy", "backlog_seconds"


class Situation(Protocol):
    """The part of Serve's `AutoscalingContext` that counts here; metrics are means over its look-back period."""

    @property
    def current_num_replicas(self) -> int: ...

    @property
    def target_num_replicas(self) -> int: ...

    @property
    def total_num_requests(self) -> float: ...

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None: ...


class OutstandingWork:
    """The policy: as many replicas as the work needs, measured in replicas.

    The work done now is the sum of the shares of time that the devices computed; at `target_busy` of each, that many
    replicas do it. What waits is the sum of the replicas' backlogs, which further replicas should be through with
    within `drain_seconds`. Backlog alone would remove a replica from among some that just keep up; time busy alone
    would not tell a full queue from an empty one.

    Calls count as well, `target_calls` for a replica: they are all there is to go by where no replica has reported
    yet, and where the time goes into the calls themselves and not into the device.
    """

    def __init__(self, *, target_busy: float, drain_seconds: float, target_calls: float) -> None:
        self._target_busy = target_busy
        self._drain_seconds = drain_seconds
        self._target_calls = target_calls

    def __call__(self, now: Situation) -> tuple[float, dict[str, Any]]:
        """Replicas wanted, not rounded and without bounds and delays, which Serve applies; and no state to keep."""
        if now.current_num_replicas == 0:
            return now.target_num_replicas, {}
        by_calls = now.total_num_requests / self._target_calls
        return max(by_calls, self._by_work(now)), {}

    def _by_work(self, now: Situation) -> float:
        reported = now.aggregated_metrics or {}
        busy, backlogs = (reported.get(name, {}) for name in (_BUSY, _BACKLOG_SECONDS))
        work = sum(busy.values()) / self._target_busy + sum(backlogs.values()) / self._drain_seconds
        # A replica that has not reported is taken to have as much to do as the others.
        return work * now.current_num_replicas / len(busy) if busy else 0.0
