"""A day in small: very many calls of all kinds, with failures injected into the device, and what is left of them.

    python -m bench.soak [--calls 200000] [--clients 32]

The embedder runs in a process of its own on a device without a model that at times raises, runs out of memory, gives
NaN, or is slow. Calls have 1 to 24 texts of very different lengths, some of them empty, in both lanes; some have a
deadline that cannot be met, some are cancelled on the way. Every call must end, with a reply or with a documented
status; and once warm the server's memory must stay where it is.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
from pergamon.client import Priority, Truncation, embed_request
from pergamon.client.errors import error_from_rpc
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1.embedder_pb2_grpc import EmbedderServiceStub

from bench.calls import OPTIONS
from bench.models import store_with
from bench.rounds import rss_mib, write
from bench.servers import own_server
from services.common.main import run
from services.embedder.settings import EmbedderSettings
from services.embedder.standalone import opened
from services.inference.backend import OutOfMemory
from services.inference.backends.fake import FakeBackend
from services.inference.types import BatchOutput, TokenBatch

_MODEL = "all-minilm-l6-v2"
#: No call may be without an end for longer than this beyond its deadline.
_TIMEOUT_S, _HANG_S = 30.0, 15.0
_RAISES, _NO_MEMORY, _NAN, _SLOW = 0.01, 0.01, 0.02, 0.005
_CANCELLED, _HOPELESS = 0.04, 0.04
_DOCUMENTED = {"DEADLINE_EXCEEDED", "DEADLINE_UNREACHABLE", "OVERLOADED", "cancelled by the caller"}
_WARM_SHARE = 0.25


def serve() -> int:
    """Our embedder on a device that fails in every way that a batch can."""
    works, draw = FakeBackend.run, random.Random(5)

    def at_times(self: FakeBackend, batch: TokenBatch) -> BatchOutput:
        lot = draw.random()
        if lot < _RAISES:
            raise RuntimeError("injected")
        if lot < _RAISES + _NO_MEMORY and batch.size > 1:
            raise OutOfMemory
        if lot < _RAISES + _NO_MEMORY + _SLOW:
            time.sleep(0.2)
        output = works(self, batch)
        if output.dense is not None and draw.random() < _NAN:
            output.dense[draw.randrange(batch.size)] = np.nan
        return output

    FakeBackend.run = at_times  # type: ignore[method-assign]
    return run(EmbedderSettings, opened)


@dataclass
class Seen:
    calls: int = 0
    texts: int = 0
    failed_texts: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)


def _call(draw: random.Random, words: list[str]) -> pb.EmbedRequest:
    size = draw.choice((1, 1, 1, 2, 4, 8, 24))
    texts = [
        "" if draw.random() < 0.01 else " ".join(draw.choices(words, k=draw.choice((2, 5, 12, 40, 150))))
        for _ in range(size)
    ]
    return embed_request(
        texts, dense_model=_MODEL, truncation=Truncation.TRUNCATION_RIGHT,
        priority=Priority.PRIORITY_BULK if draw.random() < 0.5 else Priority.PRIORITY_INTERACTIVE,
    )  # fmt: skip


async def _one(stub: EmbedderServiceStub, request: pb.EmbedRequest, draw: random.Random, seen: Seen) -> None:
    hopeless, cancelled = draw.random() < _HOPELESS, draw.random() < _CANCELLED
    call = stub.Embed(request, timeout=draw.uniform(0.0005, 0.004) if hopeless else _TIMEOUT_S)
    if cancelled:
        asyncio.get_running_loop().call_later(draw.uniform(0.0, 0.01), call.cancel)
    seen.calls += 1
    seen.texts += len(request.texts)
    try:
        async with asyncio.timeout(_TIMEOUT_S + _HANG_S):
            _check(request, await call, seen)
        seen.ends["replied"] += 1
    except TimeoutError:
        seen.wrong.append("a call had no end")
    except asyncio.CancelledError:
        seen.ends["cancelled by the caller"] += 1
    except grpc.aio.AioRpcError as failure:
        error = error_from_rpc(failure, "")
        end = error.reason or ("DEADLINE_EXCEEDED" if hopeless else failure.code().name)
        seen.ends[end] += 1
        if end not in _DOCUMENTED:
            seen.wrong.append(f"{end}: {failure.details()}")


def _check(request: pb.EmbedRequest, reply: pb.EmbedResponse, seen: Seen) -> None:
    """A report for each text, and a vector of unit length, or an error: never neither, never both."""
    rows = np.frombuffer(reply.dense.data, np.float32).reshape(reply.dense.rows, reply.dense.dimensions)
    if len(reply.reports) != len(request.texts) or len(rows) != len(request.texts):
        seen.wrong.append("a reply has not as many rows as there were texts")
        return
    lengths = np.linalg.norm(rows, axis=1)
    for report, text, length in zip(reply.reports, request.texts, lengths.tolist(), strict=True):
        if report.HasField("error"):
            seen.failed_texts[report.error.reason] += 1
        good = length == 0.0 if report.HasField("error") else abs(length - 1.0) < 1e-3
        if not good or (not text and report.error.reason != "EMPTY_INPUT"):
            seen.wrong.append(f"length {length} with the error {report.error.reason!r}")


async def load(target: str, pid: int, calls: int, clients: int, words: list[str]) -> Seen:
    seen, left = Seen(), iter(range(calls))
    every = max(1, calls // 100)

    async def client(number: int) -> None:
        draw = random.Random(number)
        async with grpc.aio.insecure_channel(target, options=(*OPTIONS, ("grpc.use_local_subchannel_pool", 1))) as way:
            stub = EmbedderServiceStub(way)
            for at in left:
                await _one(stub, _call(draw, words), draw, seen)
                if at % every == 0:
                    seen.rss_mib.append(rss_mib(pid))

    await asyncio.gather(*(client(number) for number in range(clients)))
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return serve()
    store_with(_MODEL, Path())
    words = Path(__file__).read_text(encoding="utf-8").split()
    with own_server("bench.soak", ["--child"], embedding_models=_MODEL, backend="fake") as own:
        started = time.perf_counter()
        seen = asyncio.run(load(own.target, own.pid, arguments.calls, arguments.clients, words))
        seconds = time.perf_counter() - started
        rss_after = rss_mib(own.pid)
    warm = seen.rss_mib[int(len(seen.rss_mib) * _WARM_SHARE) :]
    third = max(1, len(warm) // 3)
    before, after = (sum(part) / len(part) for part in (warm[:third], warm[-third:]))
    ended = sum(seen.ends.values())
    report = {
        "calls": seen.calls, "ended": ended, "texts": seen.texts, "seconds": round(seconds, 1),
        "ends": dict(seen.ends), "failed_texts": dict(seen.failed_texts),
        "rss_mib": {"warm": round(before, 1), "end": round(after, 1), "last": round(rss_after, 1)},
        "rss_growth": round(after / before - 1, 4), "wrong": seen.wrong[:20],
    }  # fmt: skip
    write("soak", report, lambda axes: axes.plot(seen.rss_mib))
    return 0 if not seen.wrong and ended == seen.calls and after / before - 1 <= 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
