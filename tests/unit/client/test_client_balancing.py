"""A target with several addresses, as a headless Service has, is several servers."""

from collections import Counter

import grpc
from pergamon.client import AsyncClient
from pergamon.reranker.v1 import reranker_pb2 as pb
from pergamon.reranker.v1.reranker_pb2_grpc import RerankerServiceServicer, add_RerankerServiceServicer_to_server


class CountingReranker(RerankerServiceServicer):
    """Answers with no models and counts who was asked."""

    def __init__(self, name: str, asked: Counter[str]) -> None:
        self._name = name
        self._asked = asked

    async def ListModels(self, request: pb.ListModelsRequest, context: object) -> pb.ListModelsResponse:
        self._asked[self._name] += 1
        return pb.ListModelsResponse()


async def test_client_when_a_target_has_two_addresses_then_calls_go_to_both() -> None:
    asked: Counter[str] = Counter()
    servers, addresses = list[grpc.aio.Server](), list[str]()
    for name in ("first", "second"):
        server = grpc.aio.server()
        add_RerankerServiceServicer_to_server(CountingReranker(name, asked), server)
        addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        servers.append(server)
    try:
        async with AsyncClient(f"ipv4:{','.join(addresses)}") as client:
            await client.list_rerank_models()
            # The first call may end before the second connection stands; ask until it does.
            for _ in range(200):
                if len(asked) == 2:
                    break
                await client.list_rerank_models()
    finally:
        for server in servers:
            await server.stop(None)
    assert asked.keys() == {"first", "second"}
