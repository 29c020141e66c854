"""From what a load run measured to numbers: rates, percentiles, errors by reason, what the generator itself cost."""

from collections.abc import Iterable, Sequence
from typing import Any

from services.launch.bench_load import Group, LoadPlan, Measured

_PERCENTILES = (50, 95, 99)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of values in ascending order, by the nearest rank; 0.0 of none."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * percent // 100)
    return ordered[min(len(ordered), max(1, int(rank))) - 1]


def latency_ms(seconds: Iterable[float]) -> dict[str, float]:
    """p50, p95, p99 and max in milliseconds; empty of none."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    values = {f"p{percent}": _ms(percentile(ordered, percent)) for percent in _PERCENTILES}
    return values | {"max": _ms(ordered[-1])}


def report_of(plan: LoadPlan, measured: Measured, *, within_ms: float = 0.0) -> dict[str, Any]:
    """One JSON object. `goodput_texts_per_s` counts answers that came within `within_ms`; 0: any that came."""
    good = {label: group for (label, reason), group in measured.groups.items() if not reason}
    window_s = measured.window_s or 1e-9
    calls = sum(group.calls_in_window for group in good.values())
    texts = sum(group.texts_in_window for group in good.values())
    return {
        "loop": "open" if plan.rate_per_s > 0 else "closed",
        "clients": None if plan.rate_per_s > 0 else plan.clients,
        "rate_per_s": plan.rate_per_s or None,
        "seconds": round(window_s, 3),
        "sent": measured.sent,
        "answered": sum(len(group.latency_s) for group in good.values()),
        "calls_per_s": round(calls / window_s, 2),
        "texts_per_s": round(texts / window_s, 2),
        "goodput_texts_per_s": round(texts / window_s * _share_within(good.values(), within_ms), 2),
        "latency_ms": latency_ms(seconds for group in good.values() for seconds in group.latency_s),
        "by_label": {label: _of_group(group, window_s) for label, group in sorted(good.items())},
        "errors": _errors(measured),
        "failed_texts": measured.failed_texts,
        "not_sent": measured.not_sent,
        "hung": measured.hung,
        "generator": {
            "cpu_s": round(measured.cpu_s, 2),
            "cores": round(measured.cpu_s / (measured.wall_s or 1e-9), 3),
            "lag_ms": latency_ms(measured.lag_s),
        },
    }


def _of_group(group: Group, window_s: float) -> dict[str, Any]:
    return {
        "calls_per_s": round(group.calls_in_window / window_s, 2),
        "texts_per_s": round(group.texts_in_window / window_s, 2),
        "latency_ms": latency_ms(group.latency_s),
    }


def _errors(measured: Measured) -> list[dict[str, Any]]:
    """By reason, over all labels, the most frequent first."""
    by_reason: dict[str, list[float]] = {}
    for (_, reason), group in measured.groups.items():
        if reason:
            by_reason.setdefault(reason, []).extend(group.latency_s)
    ordered = sorted(by_reason.items(), key=lambda entry: -len(entry[1]))
    return [{"reason": reason, "calls": len(times), "latency_ms": latency_ms(times)} for reason, times in ordered]


def _share_within(groups: Iterable[Group], within_ms: float) -> float:
    times = [seconds for group in groups for seconds in group.latency_s]
    if not within_ms or not times:
        return 1.0
    return sum(seconds * 1000 <= within_ms for seconds in times) / len(times)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
