"""pergamon.reranker.v1.RerankerService: convert in, call, convert out."""

from collections.abc import AsyncIterator

from pergamon.reranker.v1 import reranker_pb2 as pb
from pergamon.reranker.v1 import reranker_pb2_grpc as stubs

from services.common.auth import Role
from services.common.clock import Deadline
from services.common.errors import ServiceError
from services.common.ordered import in_order
from services.common.rpc import Call, Edge, rpc
from services.common.status import item_error
from services.common.validation import required
from services.reranker.convert import model_out, rerank_in, rerank_out
from services.reranker.engine import RerankerEngine

SERVICE = pb.DESCRIPTOR.services_by_name["RerankerService"].full_name
_STREAM_TIMEOUT_S = 24 * 3600.0
_STREAM_IN_WORK = 16
_STREAM_BYTES_IN_WORK = 64 << 20
#: Of LoadModel, which may fetch the model first.
_LOAD_TIMEOUT_S = 1800.0


class RerankerServicer(stubs.RerankerServiceServicer):
    def __init__(
        self, edge: Edge, engine: RerankerEngine, *, max_passages: int, max_reply_bytes: int = 64 << 20
    ) -> None:
        self.edge = edge
        self._engine = engine
        self._max_passages = max_passages
        self._max_reply_bytes = max_reply_bytes

    @rpc(Role.READER)
    async def Rerank(self, call: Call, request: pb.RerankRequest) -> pb.RerankResponse:
        return await self._rerank(call, request, call.deadline)

    @rpc(Role.READER, timeout_s=_STREAM_TIMEOUT_S)
    async def RerankStream(
        self, call: Call, request: AsyncIterator[pb.RerankStreamRequest]
    ) -> AsyncIterator[pb.RerankStreamResponse]:
        replies = in_order(
            request,
            lambda one: self._rerank_one(call, one),
            in_work=_STREAM_IN_WORK,
            weight=self._bytes_in_work,
            max_weight=_STREAM_BYTES_IN_WORK,
        )
        async for reply in replies:
            yield reply

    @rpc(Role.READER)
    async def ListModels(self, call: Call, request: pb.ListModelsRequest) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=[model_out(card, loaded=loaded) for card, loaded in self._engine.models()])

    @rpc(Role.READER)
    async def GetModel(self, call: Call, request: pb.GetModelRequest) -> pb.GetModelResponse:
        card, loaded = self._engine.model(request.model)
        return pb.GetModelResponse(model=model_out(card, loaded=loaded))

    @rpc(Role.ADMIN, timeout_s=_LOAD_TIMEOUT_S)
    async def LoadModel(self, call: Call, request: pb.LoadModelRequest) -> pb.LoadModelResponse:
        card = await self._engine.load(required("model", request.model))
        return pb.LoadModelResponse(model=model_out(card, loaded=True))

    @rpc(Role.ADMIN)
    async def UnloadModel(self, call: Call, request: pb.UnloadModelRequest) -> pb.UnloadModelResponse:
        card = await self._engine.unload(required("model", request.model))
        return pb.UnloadModelResponse(model=model_out(card, loaded=False))

    def _bytes_in_work(self, one: pb.RerankStreamRequest) -> int:
        """About what a request of a stream takes, and its reply with the texts; the passages of a largest call count as
        all that a stream may hold, however short they are."""
        passages = len(one.request.passages) * _STREAM_BYTES_IN_WORK // self._max_passages
        return max(2 * one.ByteSize(), passages)

    async def _rerank(self, call: Call, request: pb.RerankRequest, deadline: Deadline) -> pb.RerankResponse:
        asked = rerank_in(request, max_passages=self._max_passages)
        reply = await self._engine.rerank(asked, deadline, client=call.client)
        return rerank_out(asked, reply, max_bytes=self._max_reply_bytes)

    async def _rerank_one(self, call: Call, one: pb.RerankStreamRequest) -> pb.RerankStreamResponse:
        deadline = call.deadline.within(self.edge.default_timeout_s)
        try:
            return pb.RerankStreamResponse(id=one.id, response=await self._rerank(call, one.request, deadline))
        except ServiceError as error:
            return pb.RerankStreamResponse(id=one.id, error=item_error(error))
