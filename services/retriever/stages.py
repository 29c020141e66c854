"""What each stage of a search did: one measurement for the reply and for the metrics."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from services.common.clock import Clock
from services.common.metrics import Metrics
from services.retriever.types import StageReport, StageState


@dataclass(slots=True, kw_only=True)
class Stage:
    """A stage in progress; the code in it says how it ends."""

    name: str
    candidates_in: int = 0
    candidates_out: int = 0
    state: StageState = StageState.OK
    reason: str = ""

    def degrade(self, reason: str) -> None:
        self.state, self.reason = StageState.DEGRADED, reason

    def skip(self) -> None:
        self.state = StageState.SKIPPED


@dataclass(slots=True)
class StageLog:
    """The stages of one search, in order."""

    clock: Clock
    metrics: Metrics
    reports: list[StageReport] = field(default_factory=list[StageReport])

    @contextmanager
    def stage(self, name: str, candidates_in: int = 0) -> Generator[Stage]:
        """Time a stage. One that raises is counted in the metrics as FAILED and ends the search."""
        stage = Stage(name=name, candidates_in=candidates_in)
        started = self.clock.monotonic()
        label = "FAILED"
        try:
            yield stage
            label = stage.state.value
        finally:
            seconds = self.clock.monotonic() - started
            self.metrics.search_stage_seconds.labels(name, label).observe(seconds)
        self.reports.append(
            StageReport(
                stage=name,
                state=stage.state,
                reason=stage.reason,
                duration_ms=seconds * 1000,
                candidates_in=stage.candidates_in,
                candidates_out=stage.candidates_out,
            )
        )
