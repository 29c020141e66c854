"""From what a batcher tells about itself to the server's metrics."""

from services.common.metrics import Metrics
from services.inference.batcher import ItemEnd
from services.inference.types import Lane


class MetricsObserver:
    """The metrics of one model."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._pass_seconds = metrics.inference_stage_seconds.labels(model, "inference")
        self._queue_seconds = metrics.inference_stage_seconds.labels(model, "queue")
        self._items = metrics.batch_items.labels(model)
        self._real = metrics.tokens.labels(model, "real")
        self._padding = metrics.tokens.labels(model, "padding")
        self._ended = metrics.items_ended
        self._backlog = metrics.backlog_seconds.labels(model)
        self._model = model

    def pass_ended(self, *, items: int, real_tokens: int, padded_tokens: int, seconds: float) -> None:
        self._pass_seconds.observe(seconds)
        self._items.observe(items)
        self._real.inc(real_tokens)
        self._padding.inc(padded_tokens - real_tokens)

    def call_started(self, lane: Lane, queue_s: float) -> None:
        self._queue_seconds.observe(queue_s)

    def items_ended(self, outcome: ItemEnd, count: int) -> None:
        self._ended.labels(self._model, outcome).inc(count)

    def backlog(self, seconds: float) -> None:
        self._backlog.set(seconds)
