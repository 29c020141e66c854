"""The embedder under Ray Serve against the same embedder behind its own gRPC server, in one run, taking turns.

    python -m bench.ray_serve [--models all-minilm-l6-v2,multilingual-e5-small] [--ways proxy,direct,haproxy]
                              [--loads NAMES] [--rounds 3] [--seconds 4] [--out FILE]

Ways into Ray Serve: `proxy` is Serve's own (the default), `direct` the port of the replica
(RAY_SERVE_ENABLE_DIRECT_INGRESS), `haproxy` HAProxy before that port (RAY_SERVE_ENABLE_HA_PROXY). All servers run all
the time; each round asks one after another, first the plain server and in the next round last. Clients are this
process, on the same cores; they send bytes made before and do not read the vectors, so that they cost little and the
same for every server. Loads: bulk
calls of 32 texts from 4 clients, and 1 short text a call from 1, 8 and 32. Reported are medians over the rounds with
their spread, the ratio to the plain server, and the CPU time that each part of a server took.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import grpc
import numpy as np
from pergamon.embedder.v1 import embedder_pb2 as pb

from services.launch.bench_texts import Span, texts_of
from tests.contract.serving.clusters import processes_with, running_cluster
from tests.contract.serving.manifest import ray_environment
from tests.helpers.keys import READER, write_keys
from tests.helpers.servers import Server, free_port

METHOD = "/pergamon.embedder.v1.EmbedderService/Embed"
METADATA = (("authorization", f"Bearer {READER}"), ("application", "embedder"))
BULK_TEXTS, BULK_WORDS, SHORT_WORDS, CALLS_MADE = 32, Span(least=20, most=300), Span(least=4, most=10), 64
PLAIN, WAYS = "plain", ("proxy", "direct", "haproxy")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Calls of `texts` texts each by so many clients at a time."""

    name: str
    texts: int
    words: Span
    clients: int

    def requests(self, model: str) -> list[bytes]:
        texts = texts_of(7, self.texts * CALLS_MADE, self.words)
        calls = [texts[start : start + self.texts] for start in range(0, len(texts), self.texts)]
        lane = pb.PRIORITY_BULK if self.texts > 1 else pb.PRIORITY_INTERACTIVE
        dense = pb.DenseOutput(model=model)
        return [
            pb.EmbedRequest(texts=call, dense=dense, priority=lane, truncation=pb.TRUNCATION_RIGHT).SerializeToString()
            for call in calls
        ]


LOADS = (
    Load(name="bulk", texts=BULK_TEXTS, words=BULK_WORDS, clients=4),
    Load(name="short x1", texts=1, words=SHORT_WORDS, clients=1),
    Load(name="short x8", texts=1, words=SHORT_WORDS, clients=8),
    Load(name="short x32", texts=1, words=SHORT_WORDS, clients=32),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server to measure; `mark` finds the processes of a Ray, `pid` is the plain server."""

    way: str
    address: str
    mark: str = ""
    pid: int = 0

    def cpu_seconds(self) -> dict[str, float]:
        """By part: the time on a core so far of the process that computes, of the way in, and of the rest of Ray."""
        parts: dict[str, float] = {}
        for pid in [self.pid] if self.pid else processes_with(self.mark):
            with contextlib.suppress(OSError):
                part, seconds = _cpu_of(pid)
                parts[part] = parts.get(part, 0.0) + seconds
        return parts


def _cpu_of(pid: int) -> tuple[str, float]:
    folder = Path(f"/proc/{pid}")
    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND
    if "services.embedder" in command or "ServeReplica" in command:
        return "server", seconds
    if "Proxy" in command or "haproxy" in command:
        return "way in", seconds
    return "rest of Ray", seconds


@contextlib.contextmanager
def plain_server(settings: dict[str, str]) -> Iterator[Target]:
    server = Server("embedder", {**settings, "PERGAMON_PORT": str(free_port())})
    try:
        server.wait_until_ready()
        yield Target(way=PLAIN, address=server.target, pid=server.process.pid)
    finally:
        server.kill()


@contextlib.contextmanager
def ray_server(way: str, settings: dict[str, str], folder: Path) -> Iterator[Target]:
    port, replica_port = free_port(), free_port()
    environment = {**settings, **ray_environment(), **_of_way(way, replica_port)}
    args = {"embedder": {"min_replicas": 1, "max_replicas": 1, "num_cpus": 1}}
    with running_cluster(port, args, environment, folder / f"{way}.stderr") as mark:
        address = f"127.0.0.1:{replica_port if way == 'direct' else port}"
        yield Target(way=way, address=address, mark=mark)


def _of_way(way: str, replica_port: int) -> dict[str, str]:
    chosen = {
        "proxy": {},
        "direct": {"RAY_SERVE_ENABLE_DIRECT_INGRESS": "1"},
        "haproxy": {"RAY_SERVE_ENABLE_HA_PROXY": "1"},
    }
    ports = {"MIN_GRPC_PORT": replica_port, "MAX_GRPC_PORT": replica_port + 8}
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "0",
        "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        **{f"RAY_SERVE_DIRECT_INGRESS_{name}": str(port) for name, port in ports.items()},
        **chosen[way],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One turn: calls ended each second, their latencies, the cores that each part of the server kept busy."""

    calls_per_s: float
    p50_ms: float
    p99_ms: float
    cores: dict[str, float]
    load_average: float


async def measure(target: Target, load: Load, requests: Sequence[bytes], seconds: float) -> Measured:
    """A closed loop, `load.clients` calls at a time."""
    sizes = [("grpc.max_receive_message_length", 64 << 20)]
    async with grpc.aio.insecure_channel(target.address, options=sizes) as channel:
        call = channel.unary_unary(METHOD)
        await call(requests[0], metadata=METADATA, timeout=60)
        latencies: list[float] = []

        async def client(number: int, until: float) -> None:
            turn = number
            while (started := time.perf_counter()) < until:
                await call(requests[turn % len(requests)], metadata=METADATA, timeout=60)
                latencies.append(time.perf_counter() - started)
                turn += load.clients

        before, started = target.cpu_seconds(), time.perf_counter()
        await asyncio.gather(*(client(number, started + seconds) for number in range(load.clients)))
        took_s = time.perf_counter() - started
        after = target.cpu_seconds()
    low, high = np.percentile(latencies, (50, 99))
    return Measured(
        calls_per_s=len(latencies) / took_s, p50_ms=float(low) * 1000, p99_ms=float(high) * 1000,
        cores={part: round((spent - before.get(part, 0.0)) / took_s, 3) for part, spent in after.items()},
        load_average=os.getloadavg()[0],
    )  # fmt: skip


async def check_same(targets: Sequence[Target], model: str) -> float:
    """The least cosine between the vectors of the servers, for the same texts."""
    request = Load(name="check", texts=16, words=SHORT_WORDS, clients=1).requests(model)[0]
    rows: list[np.ndarray] = []
    for target in targets:
        async with grpc.aio.insecure_channel(target.address) as channel:
            reply = pb.EmbedResponse.FromString(
                await channel.unary_unary(METHOD)(request, metadata=METADATA, timeout=60)
            )
        assert not any(report.error.reason for report in reply.reports), reply.reports
        rows.append(np.frombuffer(reply.dense.data, "<f4").reshape(16, -1))
    return min(float((rows[0] * other).sum(axis=1).min()) for other in rows[1:])


async def run(
    targets: Sequence[Target], models: Sequence[str], loads: Sequence[Load], rounds: int, seconds: float
) -> list[dict[str, object]]:
    table: list[dict[str, object]] = []
    for model in models:
        cosine = await check_same(targets, model)
        for load in loads:
            requests = load.requests(model)
            turns: dict[str, list[Measured]] = {target.way: [] for target in targets}
            for number in range(rounds):
                for target in targets if number % 2 == 0 else reversed(targets):
                    turns[target.way].append(await measure(target, load, requests, seconds))
            for target in targets:
                row = {"model": model, "load": load.name, "way": target.way, "least_cosine": round(cosine, 6)}
                table.append(row | _summary(turns[target.way], turns[PLAIN], load.texts))
                print(json.dumps(table[-1]), file=sys.stderr, flush=True)
    return table


def _summary(turns: Sequence[Measured], plain: Sequence[Measured], texts: int) -> dict[str, object]:
    rates = [turn.calls_per_s * texts for turn in turns]
    ratios = [turn.calls_per_s / other.calls_per_s for turn, other in zip(turns, plain, strict=True)]
    return {
        "texts_per_s": round(statistics.median(rates), 1),
        "spread": [round(min(rates), 1), round(max(rates), 1)],
        "ratio_to_plain": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "p50_ms": round(statistics.median(turn.p50_ms for turn in turns), 2),
        "p99_ms": round(statistics.median(turn.p99_ms for turn in turns), 2),
        "cores": {part: round(statistics.median(t.cores.get(part, 0.0) for t in turns), 2) for part in turns[0].cores},
        "load_average": [round(turn.load_average, 1) for turn in turns],
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="all-minilm-l6-v2,multilingual-e5-small")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--loads", default=",".join(load.name for load in LOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    models = arguments.models.split(",")
    loads = [load for load in LOADS if load.name in arguments.loads.split(",")]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as running:
        folder = Path(name)
        settings = {"PERGAMON_EMBEDDING_MODELS": arguments.models, "PERGAMON_METRICS_PORT": "0",
                    "PERGAMON_MAX_BACKLOG_S": "300", **write_keys(folder)}  # fmt: skip
        targets = [running.enter_context(plain_server(settings))]
        for way in arguments.ways.split(","):
            targets.append(running.enter_context(ray_server(way, settings, folder)))
        rows = asyncio.run(run(targets, models, loads, arguments.rounds, arguments.seconds))
    report = {
        "cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version(),
        "versions": {name: version(name) for name in ("ray", "grpcio", "openvino")}, "rows": rows,
    }  # fmt: skip
    text = json.dumps(report, indent=1)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
