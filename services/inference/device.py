"""One device as the batcher sees it: what it has in hand, and what lies ready for it."""

from collections.abc import Callable

from services.inference.backend import Backend
from services.inference.worker import DeviceWorker, Pass, PassEnded


class Device:
    """State for the event loop, around the thread that drives the device. `since`: when it took what it runs."""

    def __init__(
        self,
        backend: Backend,
        *,
        on_taken: "Callable[[Device, Pass], None]",
        on_ended: "Callable[[Device, PassEnded], None]",
    ) -> None:
        """The callbacks come from the thread."""
        self.ready: Pass | None = None
        self.running: Pass | None = None
        self.since = 0.0
        self._worker = DeviceWorker(
            backend,
            on_taken=lambda work: on_taken(self, work),
            on_ended=lambda ended: on_ended(self, ended),
        )

    @property
    def alive(self) -> bool:
        return self._worker.alive

    @property
    def busy(self) -> bool:
        return self.running is not None or self.ready is not None

    def offer(self, work: Pass) -> None:
        self.ready = work
        self._worker.offer(work)

    def retract(self) -> Pass | None:
        """What lay ready, unless the thread has taken it; then it will say so."""
        work = self._worker.retract()
        if work is not None:
            self.ready = None
        return work

    def started(self, work: Pass, now: float) -> None:
        if self.ready is work:
            self.ready = None
        self.running, self.since = work, now

    def ended(self) -> None:
        self.running = None

    def stop(self) -> None:
        self._worker.stop()
