"""From what a batcher tells about itself to the server's metrics."""

import inspect
import weakref
from collections.abc import Callable
from typing import get_args

from services.common.errors import Reason
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.inference.observer import ItemEnd, PassReport
from services.inference.types import Lane


class MetricsObserver:
    """The metrics of one model; `on_device_lost` gets the name of the model whose device is gone."""

    def __init__(
        self, metrics: Metrics, model: str, *, on_device_lost: Callable[[str], None] = lambda model: None
    ) -> None:
        self._on_device_lost = on_device_lost
        self._tokenize_seconds = metrics.inference_stage_seconds.labels(model, "tokenize")
        self._queue_seconds = metrics.inference_stage_seconds.labels(model, "queue")
        self._inference_seconds = metrics.inference_stage_seconds.labels(model, "inference")
        self._pass_seconds = {lane: metrics.pass_seconds.labels(model, lane.lower()) for lane in Lane}
        self._items = metrics.batch_items.labels(model)
        self._batch_tokens = metrics.batch_tokens.labels(model)
        self._real = metrics.tokens.labels(model, "real")
        self._padding = metrics.tokens.labels(model, "padding")
        self._long_passes = metrics.long_passes.labels(model)
        self._memory_splits = metrics.memory_splits.labels(model)
        self._truncated = metrics.truncated.labels(model)
        self._shared = metrics.shared_items.labels(model)
        self._backlog = metrics.backlog_seconds.labels(model)
        self._ended = {end: metrics.items_ended.labels(model, end) for end in get_args(ItemEnd)}
        self._refused = metrics.items_refused
        self._model = model

    def pass_ended(self, report: PassReport) -> None:
        self._inference_seconds.observe(report.seconds)
        self._pass_seconds[report.lane].observe(report.seconds)
        self._items.observe(report.items)
        self._batch_tokens.observe(report.padded_tokens)
        self._real.inc(report.real_tokens)
        self._padding.inc(report.padded_tokens - report.real_tokens)
        if report.one_long_item:
            self._long_passes.inc()
        if report.out_of_memory:
            self._memory_splits.inc()

    def call_started(self, lane: Lane, queue_s: float) -> None:
        self._queue_seconds.observe(queue_s)

    def items_ended(self, outcome: ItemEnd, count: int) -> None:
        self._ended[outcome].inc(count)

    def refused(self, reason: Reason, items: int) -> None:
        self._refused.labels(self._model, reason.name).inc(items)

    def shared(self, items: int) -> None:
        self._shared.inc(items)

    def tokenized(self, seconds: float, truncated: int) -> None:
        self._tokenize_seconds.observe(seconds)
        if truncated:
            self._truncated.inc(truncated)

    def device_lost(self) -> None:
        self._on_device_lost(self._model)

    def follow_backlog(self, seconds: Callable[[], float]) -> None:
        known = weakref.WeakMethod(seconds) if inspect.ismethod(seconds) else lambda: seconds

        def now() -> float:
            """Weak: a gauge that outlives the model must not keep its weights in memory."""
            ask = known()
            return ask() if ask is not None else 0.0

        self._backlog.set_function(now)


def device_lost(edge: Edge) -> Callable[[str], None]:
    """End the server when the device of a model is gone."""
    return lambda model: edge.fail(f"the device that runs model {model!r} was lost")
