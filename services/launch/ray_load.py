"""What a replica tells of its work, so that replicas are added and removed by it: read from the metrics it keeps."""

from collections.abc import Callable, Iterator

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.samples import Sample

from services.common.clock import Clock
from services.common.metrics import Metrics

#: The share of time, 0 to 1, that the device has computed since the last reading.
BUSY = "busy"
#: Seconds until the device would be through with what waits for it now.
BACKLOG_SECONDS = "backlog_seconds"


class ReplicaLoad:
    """Both figures over all models of the replica, which share its device. None before a model has been asked."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._read_at = clock.monotonic()
        self._computed_s = 0.0

    def read(self) -> dict[str, float]:
        backlogs = _values(self._metrics.backlog_seconds, lambda sample: True)
        passes = _values(self._metrics.inference_stage_seconds, _is_time_of_passes)
        now, computed_s = self._clock.monotonic(), sum(passes)
        passed_s, self._read_at = now - self._read_at, now
        done_s, self._computed_s = computed_s - self._computed_s, computed_s
        if not backlogs:
            return {}
        # A pass is counted when it ends: one that began before the last reading can count for more than the time since.
        busy = min(1.0, done_s / passed_s) if passed_s > 0 else 0.0
        return {BUSY: busy, BACKLOG_SECONDS: sum(backlogs)}


def _is_time_of_passes(sample: Sample) -> bool:
    return sample.name.endswith("_sum") and sample.labels["stage"] == "inference"


def _values(metric: MetricWrapperBase, wanted: Callable[[Sample], bool]) -> list[float]:
    return [sample.value for sample in _samples(metric) if wanted(sample)]


def _samples(metric: MetricWrapperBase) -> Iterator[Sample]:
    for family in metric.collect():
        yield from family.samples
