"""What bulk work does to interactive calls, and they to it: each alone, then together, in turn within one run.

    python -m bench.lanes [--rounds 3] [--seconds 20] [--model all-minilm-l6-v2]

Bulk: 8 clients of a closed loop, 32 texts a call, which keeps the device busy. Interactive: an open loop of calls with
one text, at 5 % of the texts a second that bulk alone reaches. All texts have 20 to 60 words. The server tells the
length and the texts of every forward pass (an observer in its process): bulk's rate is counted from them, and what is
added to the 99th percentile is compared with the longest bulk pass there was while both ran.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.calls import EmbedCalls
from bench.models import store_with
from bench.rounds import load, spread, write
from bench.servers import own_server
from services.common.main import run
from services.embedder.settings import EmbedderSettings
from services.embedder.standalone import opened
from services.inference.observe import MetricsObserver
from services.inference.observer import PassReport
from services.launch.bench_load import LoadPlan, Measured, run_load
from services.launch.bench_report import latency_ms, percentile
from services.launch.bench_texts import Span, texts_of

_MODEL, _WORDS = "all-minilm-l6-v2", Span(least=20, most=60)
_BULK_CLIENTS, _BULK_TEXTS, _DRAWN, _SHARE = 8, 32, 512, 0.05
_PASSES_FILE = "BENCH_PASSES_FILE"


def serve() -> int:
    """Our embedder, which also writes every pass to a file: when it ended (monotonic), lane, seconds, texts."""
    told = MetricsObserver.pass_ended
    with Path(os.environ[_PASSES_FILE]).open("a", buffering=1, encoding="utf-8") as file:

        def pass_ended(self: MetricsObserver, report: PassReport) -> None:
            told(self, report)
            row = (time.monotonic(), report.lane.value, report.seconds, report.items, report.padded_tokens)
            file.write(json.dumps(row) + "\n")

        MetricsObserver.pass_ended = pass_ended  # type: ignore[method-assign]
        return run(EmbedderSettings, opened)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    seconds: float
    texts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passes:
    """The passes of a lane that ended between two moments."""

    file: Path

    def between(self, start: float, end: float, lane: str) -> list[_Pass]:
        rows = (json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines())
        return [_Pass(seconds=row[2], texts=row[3]) for row in rows if row[1] == lane and start <= row[0] <= end]


class _Bench:
    def __init__(self, target: str, model: str, passes: _Passes, seconds: float) -> None:
        texts = texts_of(5, _DRAWN, _WORDS)
        batches = [texts[start : start + _BULK_TEXTS] for start in range(0, _DRAWN, _BULK_TEXTS)]
        self._calls = EmbedCalls(target, model=model)
        self._interactive = self._calls.tickets([[f"now {text}"] for text in texts], bulk=False)
        self._bulk = self._calls.tickets(batches, bulk=True)
        self._passes = passes
        self._seconds = seconds
        self._round = 0

    async def bulk(self, seconds: float | None = None) -> float:
        """Texts a second."""
        plan = LoadPlan(clients=_BULK_CLIENTS, duration_s=seconds or self._seconds)
        started = time.monotonic()
        await run_load(plan, self._bulk, Measured())
        passes = self._passes.between(started, started + plan.duration_s, "BULK")
        return sum(one.texts for one in passes) / plan.duration_s

    async def interactive(self, rate_per_s: float) -> Measured:
        self._round += 1
        plan = LoadPlan(rate_per_s=rate_per_s, duration_s=self._seconds, seed=self._round)
        return await run_load(plan, self._interactive, Measured())

    async def both(self, rate_per_s: float) -> tuple[float, Measured, list[float], list[float]]:
        """Bulk's texts a second, what interactive saw, the seconds of bulk's passes and of the interactive ones."""
        started = time.monotonic()
        rate, measured = await asyncio.gather(self.bulk(), self.interactive(rate_per_s))
        window = (started, started + self._seconds)
        bulk, interactive = (self._passes.between(*window, lane) for lane in ("BULK", "INTERACTIVE"))
        return rate, measured, [one.seconds for one in bulk], [one.seconds for one in interactive]

    async def aclose(self) -> None:
        await self._calls.aclose()


async def measure(bench: _Bench, rounds: int) -> dict[str, Any]:
    capacity = await bench.bulk(3.0)
    rate = capacity * _SHARE
    await bench.interactive(rate)  # warm-up of short shapes
    alone: list[float] = []
    together: list[float] = []
    quiet: list[float] = []
    busy: list[float] = []
    bulk_passes: list[float] = []
    interactive_passes: list[float] = []
    added: list[float] = []
    for _ in range(rounds):
        unloaded = _latencies(await bench.interactive(rate))
        alone.append(await bench.bulk())
        texts_per_s, measured, long_passes, short_passes = await bench.both(rate)
        loaded = _latencies(measured)
        together.append(texts_per_s)
        quiet += unloaded
        busy += loaded
        bulk_passes += long_passes
        interactive_passes += short_passes
        added.append(percentile(sorted(loaded), 99) - percentile(sorted(unloaded), 99))
    longest_s = max(bulk_passes)
    added_p99_s = percentile(sorted(busy), 99) - percentile(sorted(quiet), 99)
    return {
        "interactive_calls_per_s": round(rate, 1),
        "interactive_alone_ms": latency_ms(quiet),
        "interactive_with_bulk_ms": latency_ms(busy),
        "added_p50_ms": round((statistics.median(busy) - statistics.median(quiet)) * 1000, 2),
        "added_p99_ms": round(added_p99_s * 1000, 2),
        "added_p99_ms_by_round": [round(seconds * 1000, 2) for seconds in added],
        "bulk_pass_ms": latency_ms(bulk_passes),
        "interactive_pass_ms": latency_ms(interactive_passes),
        "added_p99_by_longest_bulk_pass": round(added_p99_s / longest_s, 3),
        "added_p99_by_p99_bulk_pass": round(added_p99_s / percentile(sorted(bulk_passes), 99), 3),
        "bulk_texts_per_s": {"alone": spread(alone, 1), "with interactive": spread(together, 1)},
        "bulk_kept": round(statistics.median(together) / statistics.median(alone), 3),
        "calls": {"alone": len(quiet), "with bulk": len(busy)},
    }


def _latencies(measured: Measured) -> list[float]:
    refused = [reason for _, reason in measured.groups if reason]
    assert not refused, refused
    return list(measured.groups[("", "")].latency_s)


def _plot(axes: Any, report: dict[str, Any]) -> None:
    names = {"alone": "interactive_alone_ms", "with bulk": "interactive_with_bulk_ms", "bulk passes": "bulk_pass_ms"}
    for position, (name, key) in enumerate(names.items()):
        values = report[key]
        axes.bar([place + position * 0.27 for place in range(3)], [values[q] for q in ("p50", "p95", "p99")], 0.27,
                 label=name)  # fmt: skip
    axes.set_xticks([place + 0.27 for place in range(3)], ["p50", "p95", "p99"])
    axes.set_ylabel("ms")
    axes.legend()


async def bench_all(target: str, model: str, passes: _Passes, arguments: argparse.Namespace) -> dict[str, Any]:
    bench = _Bench(target, model, passes, arguments.seconds)
    try:
        return await measure(bench, arguments.rounds)
    finally:
        await bench.aclose()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--model", default=_MODEL)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return serve()
    store_with(arguments.model, Path())
    before = load()
    with tempfile.TemporaryDirectory(prefix="pergamon-bench-") as temporary:
        passes = _Passes(file=Path(temporary) / "passes.jsonl")
        os.environ[_PASSES_FILE] = str(passes.file)  # for the child
        with own_server("bench.lanes", ["--child"], embedding_models=arguments.model) as server:
            found = asyncio.run(bench_all(server.target, arguments.model, passes, arguments))
    report = {
        "model": arguments.model, "words": str(_WORDS), "rounds": arguments.rounds, "seconds": arguments.seconds,
        **found, "load_average": {"before": before, "after": load()},
    }  # fmt: skip
    write("lanes", report, lambda axes: _plot(axes, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
