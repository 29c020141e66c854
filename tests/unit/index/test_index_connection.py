"""Failures of the engine, as the rest of the product sees them: a server that fails on command answers here."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import grpc
import pytest
from qdrant_client import grpc as q

from services.common.errors import Reason, ServiceError, Unavailable
from services.index import connection as module
from services.index.connection import CollectionMissing, Deadline, IndexConnection


class FailingPoints(q.PointsServicer):
    """Answers `Count` with the statuses given, one after the other, then with 7; None means never."""

    def __init__(self) -> None:
        self.failures: list[tuple[grpc.StatusCode, str] | None] = []
        self.calls = 0
        self.port = 0

    async def Count(self, request: q.CountPoints, context: grpc.aio.ServicerContext) -> q.CountResponse:
        self.calls += 1
        if self.failures:
            failure = self.failures.pop(0)
            if failure is None:
                await asyncio.Event().wait()
            else:
                await context.abort(*failure)
        return q.CountResponse(result=q.CountResult(count=7))


@pytest.fixture
async def served() -> AsyncIterator[tuple[FailingPoints, IndexConnection]]:
    server, points = grpc.aio.server(), FailingPoints()
    q.add_PointsServicer_to_server(points, server)
    points.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = IndexConnection(f"127.0.0.1:{points.port}")
    yield points, connection
    await connection.aclose()
    await server.stop(0)


async def test_call_when_the_engine_is_down_for_a_moment_then_it_is_repeated(
    served: tuple[FailingPoints, IndexConnection],
) -> None:
    points, connection = served
    points.failures = [(grpc.StatusCode.UNAVAILABLE, "restarting")] * 2
    reply = await connection.points("Count", q.CountPoints(collection_name="c"), Deadline(10))
    assert (reply.result.count, points.calls) == (7, 3)


@pytest.mark.parametrize(
    ("code", "details", "kind", "reason"),
    [
        (grpc.StatusCode.NOT_FOUND, "Collection `x` doesn't exist!", CollectionMissing, Reason.INDEX_UNAVAILABLE),
        (grpc.StatusCode.INVALID_ARGUMENT, "Vector dimension error", ServiceError, Reason.DIMENSION_MISMATCH),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "too many", Unavailable, Reason.INDEX_UNAVAILABLE),
        (grpc.StatusCode.UNAUTHENTICATED, "key?", Unavailable, Reason.INDEX_UNAVAILABLE),
        (grpc.StatusCode.INVALID_ARGUMENT, "bad filter", ServiceError, Reason.INTERNAL),
        (grpc.StatusCode.INTERNAL, "panic", ServiceError, Reason.INTERNAL),
    ],
)  # fmt: skip
async def test_call_when_the_engine_answers_a_status_then_the_declared_reason(
    served: tuple[FailingPoints, IndexConnection],
    code: grpc.StatusCode,
    details: str,
    kind: type[ServiceError],
    reason: Reason,
) -> None:
    points, connection = served
    points.failures = [(code, details)]
    with pytest.raises(kind) as caught:
        await connection.points("Count", q.CountPoints(collection_name="c"), Deadline(10))
    assert caught.value.error_reason is reason
    assert points.calls == 1


async def test_call_when_the_engine_does_not_answer_then_unavailable_within_the_deadline(
    served: tuple[FailingPoints, IndexConnection],
) -> None:
    points, connection = served
    points.failures = [None]
    started = time.monotonic()
    with pytest.raises(Unavailable) as caught:
        await connection.points("Count", q.CountPoints(collection_name="c"), Deadline(0.3))
    assert caught.value.error_reason is Reason.INDEX_UNAVAILABLE
    assert time.monotonic() - started < 2


async def test_call_when_nothing_listens_then_unavailable_within_the_deadline_or_the_reconnect_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{probe.getsockname()[1]}"
    connection = IndexConnection(target)
    for timeout_s, reconnect_s in ((0.3, 30.0), (30.0, 0.3)):
        monkeypatch.setattr(module, "RECONNECT_S", reconnect_s)
        started = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            await connection.points("Count", q.CountPoints(collection_name="c"), Deadline(timeout_s))
        assert caught.value.error_reason is Reason.INDEX_UNAVAILABLE
        assert time.monotonic() - started < 3
    await connection.aclose()


async def test_call_when_no_time_is_left_then_unavailable(served: tuple[FailingPoints, IndexConnection]) -> None:
    points, connection = served
    with pytest.raises(Unavailable):
        await connection.points("Count", q.CountPoints(collection_name="c"), Deadline(0))
    assert points.calls == 0


@pytest.mark.parametrize("url", ["", "qdrant", "qdrant:", ":6334", "ftp://qdrant:6334", "http://k:secret@qdrant:6334"])
def test_connection_when_the_address_is_malformed_then_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="must be host:port") as refused:
        IndexConnection(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("prefix", "answers"), [("", True), ("http://", True), ("https://", False)])
async def test_connection_when_the_address_says_https_then_it_speaks_tls_only(
    served: tuple[FailingPoints, IndexConnection], prefix: str, answers: bool
) -> None:
    connection = IndexConnection(f"{prefix}127.0.0.1:{served[0].port}")
    call = connection.points("Count", q.CountPoints(), Deadline(2.0 if answers else 0.3))
    if answers:
        assert (await call).result.count == 7
    else:
        with pytest.raises(Unavailable):
            await call
    await connection.aclose()
