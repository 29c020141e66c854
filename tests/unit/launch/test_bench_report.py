"""Numbers of a report from what a run measured."""

from array import array

import pytest

from services.launch.bench_load import Group, LoadPlan, Measured
from services.launch.bench_report import latency_ms, percentile, report_of


def group(*seconds: float, calls: int = 0, texts: int = 0) -> Group:
    return Group(latency_s=array("d", seconds), texts=texts, calls_in_window=calls, texts_in_window=texts)


@pytest.mark.parametrize(
    ("percent", "value"), [(50, 5.0), (95, 10.0), (99, 10.0), (10, 1.0), (11, 2.0), (100, 10.0), (0, 1.0)]
)
def test_percentile_when_ten_values_then_the_nearest_rank(percent: float, value: float) -> None:
    assert percentile([float(n) for n in range(1, 11)], percent) == value


def test_latency_when_nothing_has_ended_then_empty() -> None:
    assert latency_ms([]) == {}


def test_latency_when_in_seconds_then_reported_in_milliseconds() -> None:
    assert latency_ms([0.002, 0.001]) == {"p50": 1.0, "p95": 2.0, "p99": 2.0, "max": 2.0}


def test_report_when_calls_were_refused_then_rates_are_of_answers_and_refusals_stand_by_reason() -> None:
    measured = Measured(
        window_s=2.0,
        groups={
            ("interactive", ""): group(0.010, 0.030, calls=2, texts=8),
            ("bulk", ""): group(0.500, calls=0, texts=0),
            ("interactive", "OVERLOADED"): group(0.001, 0.002),
            ("bulk", "OVERLOADED"): group(0.003),
            ("bulk", "DEADLINE_EXCEEDED"): group(9.0),
        },
        sent=8,
        ended=7,
        not_sent=1,
        cpu_s=0.5,
        wall_s=2.5,
    )
    report = report_of(LoadPlan(rate_per_s=4.0), measured)
    assert (report["loop"], report["answered"], report["calls_per_s"], report["texts_per_s"]) == ("open", 3, 1.0, 4.0)
    assert [(error["reason"], error["calls"], error["latency_ms"]["max"]) for error in report["errors"]] == [
        ("OVERLOADED", 3, 3.0),
        ("DEADLINE_EXCEEDED", 1, 9000.0),
    ]
    assert report["by_label"]["interactive"]["texts_per_s"] == 4.0
    assert report["by_label"]["bulk"]["latency_ms"]["p50"] == 500.0
    assert report["generator"]["cores"] == 0.2


def test_goodput_when_some_answers_are_late_then_only_the_others_count() -> None:
    measured = Measured(window_s=1.0, groups={("x", ""): group(0.01, 0.02, 0.2, 0.3, calls=4, texts=40)})
    assert report_of(LoadPlan(), measured, within_ms=100)["goodput_texts_per_s"] == 20.0
    assert report_of(LoadPlan(), measured)["goodput_texts_per_s"] == 40.0
