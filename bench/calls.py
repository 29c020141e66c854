"""The calls of the benches through the generated stub: as lean on the client's side as gRPC allows."""

from collections.abc import Iterator, Sequence
from itertools import count

import grpc
from pergamon.client import PergamonError, Priority, Truncation, embed_request
from pergamon.client.errors import error_from_rpc
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1.embedder_pb2_grpc import EmbedderServiceStub

from services.launch.bench_load import Ticket

LIMIT = 64 << 20
OPTIONS = (("grpc.max_receive_message_length", LIMIT), ("grpc.max_send_message_length", LIMIT))


class EmbedCalls:
    """Tickets for one server. Every text gets a number of its own in front, so that none is computed once for two."""

    def __init__(self, target: str, *, model: str = "", timeout_s: float = 60.0) -> None:
        self._channel = grpc.aio.insecure_channel(target, options=OPTIONS)
        self._stub = EmbedderServiceStub(self._channel)
        self._model = model
        self._timeout_s = timeout_s

    async def embed(self, texts: Sequence[str], *, bulk: bool) -> pb.EmbedResponse:
        """Raises PergamonError as the client does."""
        request = embed_request(
            texts, dense_model=self._model, truncation=Truncation.TRUNCATION_RIGHT,
            priority=Priority.PRIORITY_BULK if bulk else Priority.PRIORITY_INTERACTIVE,
        )  # fmt: skip
        try:
            return await self._stub.Embed(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as failure:
            raise error_from_rpc(failure, "") from failure

    def tickets(self, batches: Sequence[Sequence[str]], *, bulk: bool, label: str = "") -> Iterator[Ticket]:
        """One call for each batch in turn, without end."""

        async def send(texts: list[str]) -> int:
            reply = await self.embed(texts, bulk=bulk)
            failed = [report.error for report in reply.reports if report.HasField("error")]
            if failed and len(failed) == len(texts):
                raise PergamonError(grpc.StatusCode.UNKNOWN, failed[0].reason, failed[0].message)
            return len(texts) - len(failed)

        for number in count():
            texts = [f"{number}.{row} {text}" for row, text in enumerate(batches[number % len(batches)])]
            yield Ticket(label=label, texts=len(texts), send=lambda texts=texts: send(texts))

    async def aclose(self) -> None:
        await self._channel.close()
