"""What the host costs: calls a second with a device that answers at once, against a bare echo of the same messages.

    python -m bench.host_cost [--rounds 5] [--seconds 4] [--clients 16] [--words 5-10]

Our embedder with everything around the device (edge, checks, tokenising, batching, building the reply) and a
grpc.aio server that answers each EmbedRequest with an EmbedResponse of the same size, each in a process of its own;
the load comes from this process. 1 and 32 texts a call, the same clients for both, in turn. Beside the rates stands
the processor time that a call costs each server, and what tokenising alone takes of it.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1 import embedder_pb2_grpc as stubs

from bench.calls import OPTIONS, EmbedCalls
from bench.models import store_with
from bench.rounds import bars, cpu_s, load, ratio, spread, write
from bench.servers import Running, own_server
from services.common.main import run
from services.embedder.settings import EmbedderSettings
from services.embedder.standalone import opened
from services.inference.backends.fake import FakeBackend
from services.inference.checkpoint import TOKENIZER_FILE
from services.inference.tokenizer import TextTokenizer
from services.inference.types import BatchOutput, TokenBatch
from services.launch.bench_load import LoadPlan, Measured, run_load
from services.launch.bench_report import report_of
from services.launch.bench_texts import Span, texts_of

_MODEL, _TEXTS_A_CALL, _DRAWN = "all-minilm-l6-v2", (1, 32), 64


class _Echo(stubs.EmbedderServiceServicer):
    """Replies of the right shape, made once for each number of texts and serialised for each call."""

    def __init__(self) -> None:
        self.replies: dict[int, pb.EmbedResponse] = {}

    async def Embed(self, request: pb.EmbedRequest, context: object) -> pb.EmbedResponse:
        texts = len(request.texts)
        reply = self.replies.get(texts)
        if reply is None:
            reply = self.replies[texts] = _reply_of(texts)
        return reply


def _reply_of(texts: int) -> pb.EmbedResponse:
    reply = pb.EmbedResponse(dense_model=_MODEL, reports=[pb.EmbedReport(token_count=20)] * texts)
    reply.dense.data = np.ones((texts, 384), np.float32).tobytes()
    reply.dense.rows, reply.dense.dimensions = texts, 384
    return reply


async def serve_echo(port: int) -> None:
    server = grpc.aio.server(options=OPTIONS)
    stubs.add_EmbedderServiceServicer_to_server(_Echo(), server)
    board = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(board, server)
    await board.set("", health_pb2.HealthCheckResponse.SERVING)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def serve_own() -> int:
    """Our embedder whose fake device does not even compute hashes."""

    def at_once(self: FakeBackend, batch: TokenBatch, *_: object, **__: object) -> BatchOutput:
        shape = (batch.size, self.card.dimensions)
        return BatchOutput(dense=np.full(shape, shape[1] ** -0.5, np.float32))

    FakeBackend.run = at_once  # type: ignore[method-assign]
    return run(EmbedderSettings, opened)


async def measure(servers: dict[str, Running], texts: int, arguments: argparse.Namespace) -> dict[str, Any]:
    drawn = texts_of(4, texts * _DRAWN, Span.parse(arguments.words))
    batches: Sequence[Sequence[str]] = [drawn[start : start + texts] for start in range(0, len(drawn), texts)]
    calls = {side: EmbedCalls(server.target, model=_MODEL) for side, server in servers.items()}
    tickets = {side: one.tickets(batches, bulk=False) for side, one in calls.items()}
    before = load()
    rates: dict[str, list[float]] = {side: [] for side in calls}
    p50s: dict[str, list[float]] = {side: [] for side in calls}
    costs: dict[str, list[float]] = {side: [] for side in calls}
    cores: list[float] = []
    for number in range(arguments.rounds + 1):
        for side in list(calls)[:: -1 if number % 2 else 1]:
            plan = LoadPlan(clients=arguments.clients, duration_s=arguments.seconds if number else 1.0)
            spent_s = cpu_s(servers[side].pid)
            report = report_of(plan, await run_load(plan, tickets[side], Measured()))
            spent_s = cpu_s(servers[side].pid) - spent_s
            assert not report["errors"], report["errors"]
            if number:
                rates[side].append(report["calls_per_s"])
                p50s[side].append(report["latency_ms"]["p50"])
                costs[side].append(spent_s / report["answered"] * 1000)
                cores.append(report["generator"]["cores"])
    for one in calls.values():
        await one.aclose()
    return {
        "calls_per_s": {side: spread(values, 1) for side, values in rates.items()},
        "p50_ms": {side: spread(values) for side, values in p50s.items()},
        "server_cpu_ms_a_call": {side: spread(values, 3) for side, values in costs.items()},
        "tokenize_cpu_ms_a_call": round(tokenize_cpu_ms(batches), 3),
        "ratio": ratio(rates["pergamon"], rates["echo"]),
        "generator_cores": spread(cores),
        "load_average": {"before": before, "after": load()},
    }


def tokenize_cpu_ms(batches: Sequence[Sequence[str]]) -> float:
    """Processor time for the texts of one call, in this process."""
    store = store_with(_MODEL, Path())
    card = store.card(_MODEL)
    tokenizer = TextTokenizer.load(store.folder(card) / TOKENIZER_FILE, max_tokens=card.max_tokens)
    started = time.process_time()
    for batch in batches:
        tokenizer.encode(batch)
    return (time.process_time() - started) / len(batches) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--words", default="5-10", help="of a text; how many there are decides what tokenising costs")
    parser.add_argument("--child", choices=("own", "echo"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child == "own":
        return serve_own()
    if arguments.child == "echo":
        asyncio.run(serve_echo(EmbedderSettings().port))
        return 0
    store_with(_MODEL, Path())
    found: dict[str, Any] = {}
    with (
        own_server("bench.host_cost", ["--child", "own"], embedding_models=_MODEL, backend="fake") as own,
        own_server("bench.host_cost", ["--child", "echo"]) as echo,
    ):
        servers = {"pergamon": own, "echo": echo}
        for texts in _TEXTS_A_CALL:
            found[f"{texts} texts a call"] = asyncio.run(measure(servers, texts, arguments))
    report = {"rounds": arguments.rounds, "clients": arguments.clients, "words": arguments.words, "results": found}
    groups = {name: one["calls_per_s"] for name, one in found.items()}
    write("host_cost", report, lambda axes: bars(axes, groups, "calls/s"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
