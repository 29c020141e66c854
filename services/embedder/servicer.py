"""pergamon.embedder.v1.EmbedderService: convert in, call, convert out."""

import asyncio
from collections.abc import AsyncIterator

from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1 import embedder_pb2_grpc as stubs

from services.common.auth import Role
from services.common.errors import ServiceError
from services.common.ordered import in_order
from services.common.rpc import Call, Edge, rpc
from services.embedder.convert import embed_in, embed_out, input_type_in, item_error, model_out, texts_in
from services.embedder.engine import EmbedderEngine
from services.embedder.types import DataType

SERVICE = pb.DESCRIPTOR.services_by_name["EmbedderService"].full_name
_STREAM_TIMEOUT_S = 24 * 3600.0
_STREAM_IN_WORK = 16
_TOKENIZER_PIECE_BYTES = 1 << 20


class EmbedderServicer(stubs.EmbedderServiceServicer):
    def __init__(self, edge: Edge, engine: EmbedderEngine, *, max_texts: int) -> None:
        self.edge = edge
        self._engine = engine
        self._max_texts = max_texts

    @rpc(Role.READER)
    async def Embed(self, call: Call, request: pb.EmbedRequest) -> pb.EmbedResponse:
        return await self._embed(call, request)

    @rpc(Role.READER, timeout_s=_STREAM_TIMEOUT_S)
    async def EmbedStream(
        self, call: Call, request: AsyncIterator[pb.EmbedStreamRequest]
    ) -> AsyncIterator[pb.EmbedStreamResponse]:
        async for reply in in_order(request, lambda one: self._embed_one(call, one), in_work=_STREAM_IN_WORK):
            yield reply

    @rpc(Role.READER)
    async def Tokenize(self, call: Call, request: pb.TokenizeRequest) -> pb.TokenizeResponse:
        texts_in(len(request.texts), self._max_texts)
        ids = await self._engine.tokenize(request.model, tuple(request.texts), input_type_in(request.input_type))
        return pb.TokenizeResponse(
            texts=[pb.TokenizedText(token_count=len(row), ids=row if request.include_ids else ()) for row in ids]
        )

    @rpc(Role.READER)
    async def GetTokenizer(self, call: Call, request: pb.GetTokenizerRequest) -> AsyncIterator[pb.GetTokenizerResponse]:
        path = self._engine.tokenizer_file(request.sha256)
        content = await asyncio.to_thread(path.read_bytes)
        for start in range(0, len(content), _TOKENIZER_PIECE_BYTES):
            yield pb.GetTokenizerResponse(data=content[start : start + _TOKENIZER_PIECE_BYTES])

    @rpc(Role.READER)
    async def ListModels(self, call: Call, request: pb.ListModelsRequest) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=[model_out(info) for info in self._engine.models()])

    @rpc(Role.READER)
    async def GetModel(self, call: Call, request: pb.GetModelRequest) -> pb.GetModelResponse:
        return pb.GetModelResponse(model=model_out(await self._engine.model(request.model)))

    async def _embed(self, call: Call, request: pb.EmbedRequest) -> pb.EmbedResponse:
        asked = embed_in(request, max_texts=self._max_texts)
        reply = await self._engine.embed(asked, call.deadline)
        return embed_out(reply, asked.dense.data_type if asked.dense else DataType.FLOAT32)

    async def _embed_one(self, call: Call, one: pb.EmbedStreamRequest) -> pb.EmbedStreamResponse:
        try:
            return pb.EmbedStreamResponse(id=one.id, response=await self._embed(call, one.request))
        except ServiceError as error:
            return pb.EmbedStreamResponse(id=one.id, error=item_error(error))
