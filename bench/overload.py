"""Ten times more calls than the embedder can answer: what it still answers, how fast it refuses, what it holds on to.

    python -m bench.overload [--seconds 60] [--factor 10] [--model all-minilm-l6-v2]

Calls of 16 texts of 150 tokens. Peak goodput is what closed loops of 2, 4, 8 and 16 clients reach at best; it is
measured before and after the overload. Then an open loop of ten times that rate, with a deadline of 10 s a call.
Goodput counts texts of calls that were answered in time and within the window.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.calls import EmbedCalls
from bench.models import store_with
from bench.rounds import load, rss_mib, write
from bench.servers import Running, own_server
from services.inference.checkpoint import TOKENIZER_FILE
from services.inference.tokenizer import TextTokenizer
from services.launch.bench_load import LoadPlan, Measured, Ticket, run_load
from services.launch.bench_report import report_of
from services.launch.bench_texts import Span, texts_of

_MODEL, _TEXTS, _TOKENS, _DRAWN = "all-minilm-l6-v2", 16, 150, 64
_CLIENTS, _PEAK_SECONDS, _DEADLINE_S, _MAX_OUTSTANDING = (2, 4, 8, 16), 4.0, 10.0, 2_000
_NUMBER_TOKENS, _RSS_INTERVAL_S, _WARM_UP_SAMPLES = 6, 0.5, 10


def batches_of(model: str) -> list[list[str]]:
    """Calls of texts that have about 150 tokens with the number that is put before them."""
    store = store_with(model, Path())
    card = store.card(model)
    tokenizer = TextTokenizer.load(store.folder(card) / TOKENIZER_FILE, max_tokens=card.max_tokens)
    texts: list[str] = []
    for text in texts_of(6, _TEXTS * _DRAWN, Span(least=_TOKENS, most=_TOKENS)):
        words = text.split()
        while len(tokenizer.token_ids([" ".join(words)], prefix=card.passage_prefix)[0]) > _TOKENS - _NUMBER_TOKENS:
            words.pop()
        texts.append(" ".join(words))
    return [texts[start : start + _TEXTS] for start in range(0, len(texts), _TEXTS)]


async def peak(tickets: Iterator[Ticket], seconds: float) -> dict[str, Any]:
    """The best of several numbers of clients."""
    found: list[dict[str, Any]] = []
    for clients in _CLIENTS:
        plan = LoadPlan(clients=clients, duration_s=seconds, timeout_s=_DEADLINE_S)
        report = report_of(plan, await run_load(plan, tickets, Measured()))
        found.append({key: report[key] for key in ("clients", "texts_per_s", "latency_ms")})
    return max(found, key=lambda one: one["texts_per_s"]) | {"by_clients": found}


async def sample_rss(pid: int, samples: list[float]) -> None:
    with suppress(ProcessLookupError, FileNotFoundError):
        while True:
            samples.append(rss_mib(pid))
            await asyncio.sleep(_RSS_INTERVAL_S)


async def bench(server: Running, arguments: argparse.Namespace) -> dict[str, Any]:
    calls = EmbedCalls(server.target, model=arguments.model, timeout_s=_DEADLINE_S)
    tickets = calls.tickets(batches_of(arguments.model), bulk=False)
    await run_load(LoadPlan(clients=4, duration_s=3.0), tickets, Measured())
    before = await peak(tickets, _PEAK_SECONDS)
    rate = before["texts_per_s"] / _TEXTS * arguments.factor
    plan = LoadPlan(
        rate_per_s=rate, duration_s=arguments.seconds, timeout_s=_DEADLINE_S, max_outstanding=_MAX_OUTSTANDING
    )
    samples: list[float] = []
    sampler = asyncio.create_task(sample_rss(server.pid, samples))
    overload = report_of(plan, await run_load(plan, tickets, Measured()), within_ms=_DEADLINE_S * 1000)
    sampler.cancel()
    await asyncio.gather(sampler, return_exceptions=True)
    after = await peak(tickets, _PEAK_SECONDS)
    await calls.aclose()
    steady = samples[_WARM_UP_SAMPLES:] or samples
    peak_texts_per_s = max(before["texts_per_s"], after["texts_per_s"])
    return {
        "peak_before": before,
        "overload": overload,
        "peak_after": after,
        "goodput_of_peak": round(overload["goodput_texts_per_s"] / peak_texts_per_s, 3),
        "rss_mib": {"first": round(steady[0]), "last": round(steady[-1]), "most": round(max(steady))},
        "deadline_s": _DEADLINE_S,
        "max_outstanding": _MAX_OUTSTANDING,
    }


def _plot(axes: Any, report: dict[str, Any]) -> None:
    rates = {
        "peak before": report["peak_before"]["texts_per_s"],
        "10 x overload": report["overload"]["goodput_texts_per_s"],
        "peak after": report["peak_after"]["texts_per_s"],
    }
    axes.bar(list(rates), list(rates.values()))
    axes.set_ylabel("texts/s answered")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--factor", type=float, default=10.0)
    parser.add_argument("--model", default=_MODEL)
    arguments = parser.parse_args()
    busy = load()
    with own_server("services.embedder", embedding_models=arguments.model) as server:
        found = asyncio.run(bench(server, arguments))
    report = {
        "model": arguments.model, "texts_a_call": _TEXTS, "tokens_a_text": _TOKENS, "factor": arguments.factor,
        **found, "load_average": {"before": busy, "after": load()},
    }  # fmt: skip
    write("overload", report, lambda axes: _plot(axes, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
