"""The embedder over gRPC: against our engine alone (bulk), and against infinity-emb (one short text a call).

    python -m bench.embed_service [--rounds 5] [--calls 400] [--texts 256] [--only engine|infinity]

Bulk: 256 texts of 20 to 300 words, in one call and as 8 calls sent together, against the same texts handed to
the engine in a process of its own. One text a call: 1, 8 and 32 clients in closed loops; infinity runs with torch in
bf16 on the CPU and speaks HTTP with JSON, ours is gRPC; all servers stay up, only one is called at a time, the client
shares their cores.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from pergamon.client import PergamonError

from bench import peers
from bench.calls import EmbedCalls
from bench.children import Child
from bench.models import store_with
from bench.peer_folder import make_peer_folder
from bench.rounds import bars, cpu_s, load, ratio, spread, write
from bench.servers import Running, answers_http, free_port, own_server, serving
from services.launch.bench_load import LoadPlan, Measured, Ticket, run_load
from services.launch.bench_report import report_of
from services.launch.bench_texts import Span, texts_of

_MODEL, _PEER = "all-minilm-l6-v2", "infinity"
_BULK_CALLS, _BULK_WORDS = 8, Span(least=20, most=300)
_SHORT_WORDS, _SHORT_TEXTS = Span(least=5, most=10), 64
_CLIENTS = (1, 8, 32)
_PEER_SETTINGS = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}

Sides = dict[str, Callable[[], Awaitable[float]]]


async def alternate(sides: Sides, rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            taken[name].append(await sides[name]())
    return taken


async def against_engine(server: Running, amount: int, rounds: int, threads: int) -> dict[str, Any]:
    store = store_with(_MODEL, Path())
    texts = texts_of(1, amount, _BULK_WORDS)
    calls = EmbedCalls(server.target, model=_MODEL)
    numbers = count()
    before = load()
    with Child(["-m", "bench.own_engine"]) as engine:
        engine.ask("load", models_dir=str(store.root), model=_MODEL, threads=threads)

        def fresh() -> list[str]:
            number = next(numbers)
            return [f"{number} {text}" for text in texts]

        async def alone() -> float:
            answer = await asyncio.to_thread(engine.ask, "embed", texts=fresh())
            cpu_ms["engine"].append(answer["cpu_s"] / amount * 1000)
            return amount / answer["seconds"]

        async def served(side: str, parts: int) -> float:
            asked, spent_s, started = fresh(), cpu_s(server.pid), time.perf_counter()
            await asyncio.gather(*(calls.embed(asked[part::parts], bulk=True) for part in range(parts)))
            rate = amount / (time.perf_counter() - started)
            cpu_ms[side].append((cpu_s(server.pid) - spent_s) / amount * 1000)
            return rate

        sides: Sides = {"engine": alone} | {
            side: partial(served, side, parts)
            for side, parts in (("service, 1 call", 1), ("service, 8 calls", _BULK_CALLS))
        }
        cpu_ms: dict[str, list[float]] = {side: [] for side in sides}
        await alternate(sides, 1)
        for warm_up in cpu_ms.values():
            warm_up.clear()
        rates = await alternate(sides, rounds)
    await calls.aclose()
    return {
        "texts_per_s": {side: spread(values) for side, values in rates.items()},
        "texts": amount,
        "cpu_ms_a_text": {side: spread(values) for side, values in cpu_ms.items()},
        "ratio_one_call": ratio(rates["service, 1 call"], rates["engine"]),
        "ratio_eight_calls": ratio(rates["service, 8 calls"], rates["engine"]),
        "load_average": {"before": before, "after": load()},
    }


class HttpCalls:
    """The same calls as `EmbedCalls`, to an OpenAI-shaped endpoint."""

    def __init__(self, port: int) -> None:
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, limits=limits)

    def tickets(self, batches: list[list[str]]) -> Iterator[Ticket]:
        async def send(texts: list[str]) -> int:
            reply = await self._client.post("/embeddings", json={"model": _MODEL, "input": texts})
            reply.raise_for_status()
            return len(reply.json()["data"])

        for number in count():
            texts = [f"{number}.{row} {text}" for row, text in enumerate(batches[number % len(batches)])]
            yield Ticket(label="", texts=len(texts), send=lambda texts=texts: send(texts))

    async def aclose(self) -> None:
        await self._client.aclose()


async def against_peer(server: Running, peer: Running, rounds: int, calls: int) -> dict[str, Any]:
    short = [[text] for text in texts_of(2, _SHORT_TEXTS, _SHORT_WORDS)]
    ours, theirs = EmbedCalls(server.target, model=_MODEL), HttpCalls(peer.port)
    tickets = {"pergamon": ours.tickets(short, bulk=False), _PEER: theirs.tickets(short)}
    pids = {"pergamon": server.pid, _PEER: peer.pid}
    found: dict[str, Any] = {}
    for clients in _CLIENTS:
        before = load()
        rates: dict[str, list[float]] = {side: [] for side in tickets}
        p50s: dict[str, list[float]] = {side: [] for side in tickets}
        costs: dict[str, list[float]] = {side: [] for side in tickets}
        for number in range(rounds + 1):
            for side in list(tickets)[:: -1 if number % 2 else 1]:
                # A quarter for one client, who waits each time; the first round is warm-up.
                plan = LoadPlan(clients=clients, calls=max(20, calls // 4) if clients == 1 else calls)
                spent_s = cpu_s(pids[side])
                report = report_of(plan, await run_load(plan, tickets[side], Measured()))
                if report["errors"]:
                    raise PergamonError(*report["errors"][0].values())
                if number:
                    rates[side].append(report["calls_per_s"])
                    p50s[side].append(report["latency_ms"]["p50"])
                    costs[side].append((cpu_s(pids[side]) - spent_s) / report["answered"] * 1000)
        found[f"{clients} clients"] = {
            "calls_per_s": {side: spread(values, 1) for side, values in rates.items()},
            "p50_ms": {side: spread(values) for side, values in p50s.items()},
            "server_cpu_ms_a_call": {side: spread(values) for side, values in costs.items()},
            "ratio_calls": ratio(rates["pergamon"], rates[_PEER]),
            "ratio_p50": ratio(p50s["pergamon"], p50s[_PEER]),
            "load_average": {"before": before, "after": load()},
        }
    await ours.aclose()
    await theirs.aclose()
    return found


def start_peer(stack: ExitStack, folder: Path) -> Running:
    store = store_with(_MODEL, folder)
    peer_folder = make_peer_folder(store, store.card(_MODEL), folder / "peer")
    port = free_port()
    python = peers.python_of(_PEER)
    command = [
        str(python.with_name("infinity_emb")), "v2", "--model-id", str(peer_folder), "--served-model-name", _MODEL,
        "--engine", "torch", "--device", "cpu", "--dtype", "bfloat16", "--no-bettertransformer", "--host", "127.0.0.1",
        "--port", str(port),
    ]  # fmt: skip
    ready = f"http://127.0.0.1:{port}/health"
    return stack.enter_context(
        serving(command, port, lambda: answers_http(ready), python=python, environment=_PEER_SETTINGS)
    )


async def bench(arguments: argparse.Namespace, stack: ExitStack) -> dict[str, Any]:
    threads = len(os.sched_getaffinity(0))
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pergamon-bench-")))
    server = stack.enter_context(own_server("services.embedder", embedding_models=_MODEL, max_backlog_s="300"))
    report: dict[str, Any] = {"model": _MODEL, "threads_of_each_side": threads, "rounds": arguments.rounds}
    if arguments.only in ("", "engine"):
        report["bulk"] = await against_engine(server, arguments.texts, arguments.rounds, threads)
    if arguments.only in ("", "infinity"):
        peer = start_peer(stack, folder)
        report["peer"] = peers.versions_of(_PEER) | {"engine": "torch bf16 on the CPU, HTTP with JSON"}
        report["one_text_a_call"] = await against_peer(server, peer, arguments.rounds, arguments.calls)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=400, help="of 8 and of 32 clients in a round")
    parser.add_argument("--texts", type=int, default=256, help="of the bulk comparison")
    parser.add_argument("--only", choices=("", "engine", "infinity"), default="")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        report = asyncio.run(bench(arguments, stack))
    groups = {name: one["calls_per_s"] for name, one in report.get("one_text_a_call", {}).items()}
    if "bulk" in report:
        groups = {"bulk, texts/s": report["bulk"]["texts_per_s"], **groups}
    write("embed_service", report, lambda axes: bars(axes, groups, "calls/s (bulk: texts/s)"))


if __name__ == "__main__":
    main()
