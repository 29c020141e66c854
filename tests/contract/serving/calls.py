"""Calls of the contract suite, without the product's client: what is on the wire is what counts."""

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1 import embedder_pb2_grpc as stubs
from pergamon.reranker.v1 import reranker_pb2, reranker_pb2_grpc

from tests.helpers.keys import READER

TIMEOUT_S = 20


def key_to(application: str, key: str = READER) -> tuple[tuple[str, str], ...]:
    """The metadata of a call: who calls, and which application of a Ray is meant."""
    return (("authorization", f"Bearer {key}"), ("application", application))


KEY = key_to("embedder")


class Service:
    """A stub, with a key and a time limit in every call."""

    def __init__(self, stub: Any, application: str) -> None:
        self._stub = stub
        self.metadata = key_to(application)

    def call(self, method: str, request: Any, *, timeout: float = TIMEOUT_S, metadata: Any = ()) -> Any:
        return getattr(self._stub, method)(request, timeout=timeout, metadata=metadata or self.metadata)


class Reranker(Service):
    def __init__(self, channel: grpc.Channel) -> None:
        super().__init__(reranker_pb2_grpc.RerankerServiceStub(channel), "reranker")


class Embedder(Service):
    def __init__(self, channel: grpc.Channel, application: str = "embedder") -> None:
        super().__init__(stubs.EmbedderServiceStub(channel), application)

    def embed(self, *texts: str, **options: Any) -> pb.EmbedResponse:
        return self.call("Embed", embed(*texts), **options)


class OpenStream:
    """An EmbedStream, or a RerankStream, that is in work until it is closed."""

    def __init__(self, service: Service, **options: Any) -> None:
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        embeds = isinstance(service, Embedder)
        self._request, self._texts = (
            (pb.EmbedStreamRequest, embed) if embeds else (reranker_pb2.RerankStreamRequest, rerank)
        )
        self.replies = service.call("EmbedStream" if embeds else "RerankStream", iter(self._asked.get, None), **options)

    def answer(self, name: str, *texts: str) -> Any:
        """Ask, and wait for the answer: after that, the server surely has the stream in work."""
        self._asked.put(self._request(id=name, request=self._texts(*texts)))
        return next(self.replies)

    def close(self) -> None:
        self._asked.put(None)

    def cancel(self) -> None:
        self.replies.cancel()
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A status as a client sees it."""

    code: grpc.StatusCode
    message: str
    details: tuple[Message, ...]

    def detail(self, kind: type[Any]) -> Any:
        (found,) = [detail for detail in self.details if isinstance(detail, kind)]
        return found

    @property
    def reason(self) -> str:
        return self.detail(error_details_pb2.ErrorInfo).reason


_KINDS = (
    error_details_pb2.ErrorInfo,
    error_details_pb2.BadRequest,
    error_details_pb2.RetryInfo,
    error_details_pb2.ResourceInfo,
)


def failure_of(call: Callable[[], Any]) -> Failure:
    """The status of a call that must fail; its details must repeat code and message."""
    try:
        outcome = call()
    except grpc.RpcError as error:
        return _read(error)
    raise AssertionError(f"the call did not fail, and returned {outcome!r}")


def _read(error: Any) -> Failure:
    details: list[Message] = []
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            assert code_pb2.Code.Name(status.code) == error.code().name
            assert status.message == error.details()
            details += [_unpacked(packed) for packed in status.details]
    return Failure(code=error.code(), message=error.details(), details=tuple(details))


def _unpacked(packed: Any) -> Message:
    (kind,) = [kind for kind in _KINDS if packed.Is(kind.DESCRIPTOR)]
    detail = kind()
    packed.Unpack(detail)
    return detail


def embed(*texts: str, model: str = "", **fields: Any) -> pb.EmbedRequest:
    return pb.EmbedRequest(texts=texts, dense=pb.DenseOutput(model=model), **fields)


def rerank(*passages: str, query: str = "w1", **fields: Any) -> reranker_pb2.RerankRequest:
    return reranker_pb2.RerankRequest(query=query, passages=passages, **fields)


def stream_of(requests: Sequence[pb.EmbedRequest]) -> Iterator[pb.EmbedStreamRequest]:
    return (pb.EmbedStreamRequest(id=str(number), request=request) for number, request in enumerate(requests))
