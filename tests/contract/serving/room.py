"""A server that has all the calls it can hold, or none; and waiting for what a test cannot be told."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import grpc

from tests.contract.serving.calls import OpenStream, Service

#: So few that a test can fill the server.
MAX_CALLS = 4


@contextlib.contextmanager
def filled(service: Service) -> Iterator[list[OpenStream]]:
    """Open streams, as many as the server holds calls. They are cancelled at the end of the block."""
    with ExitStack() as ending:
        streams: list[OpenStream] = []
        for number in range(MAX_CALLS):
            streams.append(OpenStream(service))
            ending.callback(streams[-1].cancel)
            streams[-1].answer(str(number), "w1")
        yield streams


def wait_for_room(service: Service) -> None:
    """Until the server has no call in work. Fails when one is never let go."""
    deadline = time.monotonic() + 20
    while True:
        try:
            with filled(service) as streams:
                for stream in streams:
                    stream.close()
                    assert [*stream.replies] == []
            return
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert time.monotonic() < deadline, "a call stays in work for ever"


def wait_until(holds: Callable[[], bool], what: str, *, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.05)


def wait_until_steady(count: Callable[[], int], *, for_s: float = 0.5) -> None:
    """Until the count is above 0 and has not changed for this long."""
    last, since = 0, time.monotonic()

    def steady() -> bool:
        nonlocal last, since
        if count() != last:
            last, since = count(), time.monotonic()
        return last > 0 and time.monotonic() - since >= for_s

    wait_until(steady, "a count that stays")
