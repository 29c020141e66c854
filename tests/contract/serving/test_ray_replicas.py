"""Under Ray Serve: calls share passes, replicas come and go with the work, and one that dies takes no call with it."""

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from pergamon.client import AsyncClient, RetryPolicy

from tests.contract.serving.calls import Embedder
from tests.contract.serving.clusters import processes_with
from tests.contract.serving.conftest import SIZES, SLOW, Serving
from tests.contract.serving.passes import Passes
from tests.contract.serving.room import wait_until
from tests.helpers.keys import READER

pytestmark = pytest.mark.timeout(150)

#: Each takes the device 31 ms; all differ, because equal texts are computed once.
LONG_TEXTS = [f"w{number} " * 60 for number in range(64)]
#: What the product's client does again; INTERNAL without a reason is how Serve's proxy says that it lost the replica.
RETRYABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL}


@pytest.fixture
def passes(told: dict[str, str]) -> Passes:
    return Passes(Path(told["PERGAMON_MODELS_DIR"]))


@pytest.fixture
def slow(ray_serve: Serving, passes: Passes) -> Iterator[Embedder]:
    """The slow embedder, with one replica that is idle."""
    with grpc.insecure_channel(ray_serve.target, options=SIZES) as channel:
        embedder = Embedder(channel, SLOW)
        wait_until(lambda: len(passes.running()) == 1, "one replica")
        wait_until(lambda: _answers(embedder), "an answer")
        yield embedder


def _answers(embedder: Embedder) -> bool:
    try:
        embedder.embed("w1")
    except grpc.RpcError:
        return False
    return True


class Clients:
    """A thread for each list of texts, which calls without a pause; `ended` counts the calls by status."""

    def __init__(self, embedder: Embedder, *calls: list[str]) -> None:
        self._embedder = embedder
        self.ended = Counter[grpc.StatusCode]()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=texts) for texts in calls]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=30)
            assert not thread.is_alive(), "a call has no answer"

    def _call(self, *texts: str) -> None:
        while not self._stop.is_set():
            try:
                self._embedder.embed(*texts)
                self.ended[grpc.StatusCode.OK] += 1
            except grpc.RpcError as error:
                self.ended[error.code()] += 1
                self._stop.wait(0.05)


def test_batching_when_calls_of_several_clients_wait_then_one_pass_takes_them_all(
    slow: Embedder, passes: Passes
) -> None:
    with ThreadPoolExecutor(4) as pool:
        before = len(passes.sizes())
        first = pool.submit(slow.embed, *LONG_TEXTS[:16])
        wait_until(lambda: len(passes.sizes()) > before, "a pass that takes half a second")
        others = [pool.submit(slow.embed, f"w{number}") for number in range(3)]
        assert len(first.result().reports) == 16
        assert all(len(other.result().reports) == 1 for other in others)
    assert passes.sizes()[before:] == [16, 3]


def test_scaling_when_the_device_is_saturated_then_a_replica_is_added_and_removed_when_it_is_over(
    slow: Embedder, passes: Passes
) -> None:
    """Three calls are far below what a replica may have in work: it is their work that counts."""
    with Clients(slow, LONG_TEXTS[:8], LONG_TEXTS[8:16], LONG_TEXTS[16:24]) as clients:
        wait_until(lambda: len(passes.running()) == 2, "a second replica")
        idle = {pid: len(sizes) for pid, sizes in passes.running().items()}
        wait_until(lambda: all(len(sizes) > idle[pid] + 8 for pid, sizes in passes.running().items()), "work for both")
    assert set(clients.ended) == {grpc.StatusCode.OK}
    wait_until(lambda: len(passes.running()) == 1, "one replica again")


def test_replica_when_it_is_killed_under_load_then_every_call_is_answered_and_another_takes_over(
    slow: Embedder, passes: Passes
) -> None:
    (lost,) = passes.running()
    with Clients(slow, LONG_TEXTS[:1], LONG_TEXTS[1:2], LONG_TEXTS[2:3]) as clients:
        wait_until(lambda: clients.ended[grpc.StatusCode.OK] > 10, "calls")
        os.kill(lost, signal.SIGKILL)
        wait_until(lambda: clients.ended.total() > clients.ended[grpc.StatusCode.OK], "a call that notices")
        before = clients.ended[grpc.StatusCode.OK]
        wait_until(lambda: clients.ended[grpc.StatusCode.OK] > before + 10, "calls that succeed again")
    assert set(clients.ended) <= RETRYABLE | {grpc.StatusCode.OK}
    assert lost not in passes.running()


async def test_client_when_the_only_replica_is_lost_then_its_retries_hide_it(ray_serve: Serving) -> None:
    patient = RetryPolicy(max_attempts=30, max_backoff_s=1.0)
    async with AsyncClient(ray_serve.target, api_key=READER, timeout_s=60, retry=patient) as client:
        await client.embed(["w1"])
        (replica,) = [pid for pid in processes_with(ray_serve.mark) if b"ServeReplica:embedder" in _command(pid)]
        os.kill(replica, signal.SIGKILL)
        replies = await asyncio.gather(*(client.embed([f"w{number}"]) for number in range(3)))
    assert [len(reply.reports) for reply in replies] == [1, 1, 1]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
