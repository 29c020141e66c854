"""pergamon.reranker.v1.RerankerService: convert in, call, convert out."""

from pergamon.reranker.v1 import reranker_pb2 as pb
from pergamon.reranker.v1 import reranker_pb2_grpc as stubs

from services.common.auth import Role
from services.common.rpc import Call, Edge, rpc
from services.reranker.convert import model_out, rerank_in, rerank_out
from services.reranker.engine import RerankerEngine

SERVICE = pb.DESCRIPTOR.services_by_name["RerankerService"].full_name


class RerankerServicer(stubs.RerankerServiceServicer):
    def __init__(self, edge: Edge, engine: RerankerEngine, *, max_passages: int) -> None:
        self.edge = edge
        self._engine = engine
        self._max_passages = max_passages

    @rpc(Role.READER)
    async def Rerank(self, call: Call, request: pb.RerankRequest) -> pb.RerankResponse:
        asked = rerank_in(request, max_passages=self._max_passages)
        return rerank_out(asked, await self._engine.rerank(asked, call.deadline))

    @rpc(Role.READER)
    async def ListModels(self, call: Call, request: pb.ListModelsRequest) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=[model_out(card, loaded=loaded) for card, loaded in self._engine.models()])

    @rpc(Role.READER)
    async def GetModel(self, call: Call, request: pb.GetModelRequest) -> pb.GetModelResponse:
        card, loaded = self._engine.model(request.model)
        return pb.GetModelResponse(model=model_out(card, loaded=loaded))
