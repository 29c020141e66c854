"""pergamon.retriever.v1.RetrieverService: convert in, call, convert out."""

from pergamon.retriever.v1 import retriever_pb2 as pb
from pergamon.retriever.v1 import retriever_pb2_grpc as stubs

from services.common.auth import Role
from services.common.rpc import Call, Edge, rpc
from services.retriever.context import assemble
from services.retriever.convert import retrieve_in, retrieve_out, search_in, search_out
from services.retriever.search import Searcher

SERVICE = pb.DESCRIPTOR.services_by_name["RetrieverService"].full_name


class RetrieverServicer(stubs.RetrieverServiceServicer):
    def __init__(self, edge: Edge, searcher: Searcher) -> None:
        self.edge = edge
        self._searcher = searcher

    @rpc(Role.READER)
    async def Search(self, call: Call, request: pb.SearchRequest) -> pb.SearchResponse:
        asked = search_in(request, call.principal)
        return search_out(await self._searcher.search(asked, call.deadline))

    @rpc(Role.READER)
    async def Retrieve(self, call: Call, request: pb.RetrieveRequest) -> pb.RetrieveResponse:
        asked, shape = retrieve_in(request, call.principal)
        reply = await self._searcher.search(asked, call.deadline)
        return retrieve_out(reply, assemble(reply.passages, shape))
