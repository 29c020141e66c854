"""How many replicas there should be, by what they report; and what a replica reports."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from services.common.clock import FakeClock
from services.common.metrics import Metrics
from services.inference.observe import MetricsObserver
from services.launch.ray_load import BACKLOG_SECONDS, BUSY, ReplicaLoad
from services.launch.ray_policy import OutstandingWork
from services.launch.ray_scaling import InferenceScaling


@dataclass(frozen=True, kw_only=True)
class Now:
    """As Serve tells it."""

    current_num_replicas: int
    target_num_replicas: int = 1
    total_num_requests: float = 0.0
    aggregated_metrics: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])

    @classmethod
    def of(cls, *replicas: tuple[float, float], silent: int = 0, calls: float = 0.0) -> "Now":
        """Replicas by (busy, backlog seconds), and so many that have not reported."""
        return cls(
            current_num_replicas=len(replicas) + silent,
            total_num_requests=calls,
            aggregated_metrics={
                BUSY: {str(number): busy for number, (busy, _) in enumerate(replicas)},
                BACKLOG_SECONDS: {str(number): backlog for number, (_, backlog) in enumerate(replicas)},
            },
        )


POLICY = OutstandingWork(target_busy=0.8, drain_seconds=5.0, target_calls=64.0)


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        (Now.of((0.0, 0.0)), 0.0),
        (Now.of((0.8, 0.0)), 1.0),
        (Now.of((1.0, 5.0)), 2.25),
        (Now.of((0.6, 0.0), (0.6, 0.0)), 1.5),
        (Now.of((0.8, 0.0), silent=1), 2.0),
        (Now.of((0.1, 0.0), calls=128.0), 2.0),
        (Now.of(silent=2, calls=192.0), 3.0),
        (Now.of(silent=2), 0.0),
    ],
    ids=["idle", "at target", "queue", "just keeps up", "one silent", "many calls", "no report", "nothing"],
)
def test_policy_when_replicas_report_then_as_many_as_their_work_needs(now: Now, wanted: float) -> None:
    replicas, state = POLICY(now)
    assert replicas == pytest.approx(wanted)
    assert state == {}


def test_policy_when_no_replica_runs_then_the_number_stays_that_is_aimed_at() -> None:
    assert POLICY(Now(current_num_replicas=0, target_num_replicas=3))[0] == 3


def test_policy_when_ray_reads_the_options_of_a_deployment_then_it_is_made_with_their_numbers() -> None:
    config = pytest.importorskip("ray.serve.config")
    options: dict[str, Any] = InferenceScaling(drain_seconds=2.0).of_deployment()["autoscaling_config"]
    policy = config.AutoscalingConfig(**options).policy
    made = policy.get_policy()(**policy.policy_kwargs)
    assert made(Now.of((0.8, 2.0)))[0] == pytest.approx(2.0)


def test_load_when_no_model_has_been_asked_then_nothing_is_reported() -> None:
    assert ReplicaLoad(Metrics(), FakeClock()).read() == {}


def test_load_when_passes_end_then_their_share_of_the_time_since_and_the_backlog_of_all_models() -> None:
    metrics, clock = Metrics(), FakeClock()
    load = ReplicaLoad(metrics, clock)
    first, second = MetricsObserver(metrics, "a"), MetricsObserver(metrics, "b")
    first.follow_backlog(lambda: 1.5)
    second.follow_backlog(lambda: 0.5)
    metrics.inference_stage_seconds.labels("a", "inference").observe(2.0)
    metrics.inference_stage_seconds.labels("b", "inference").observe(1.0)
    metrics.inference_stage_seconds.labels("a", "queue").observe(50.0)
    clock.advance(6.0)
    assert load.read() == {BUSY: pytest.approx(0.5), BACKLOG_SECONDS: pytest.approx(2.0)}
    clock.advance(6.0)
    assert load.read()[BUSY] == 0.0
    metrics.inference_stage_seconds.labels("a", "inference").observe(9.0)  # began before the last reading
    clock.advance(6.0)
    assert load.read()[BUSY] == 1.0
