"""pergamon.embedder.v1.EmbedderService: convert in, call, convert out."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1 import embedder_pb2_grpc as stubs

from services.common.auth import Role
from services.common.clock import Deadline
from services.common.errors import ServiceError
from services.common.ordered import in_order
from services.common.rpc import Call, Edge, rpc
from services.common.status import item_error
from services.common.validation import required
from services.embedder.convert import embed_in, embed_out, input_type_in, model_out, tokenize_in
from services.embedder.engine import EmbedderEngine
from services.embedder.types import EmbedReply

SERVICE = pb.DESCRIPTOR.services_by_name["EmbedderService"].full_name
_STREAM_TIMEOUT_S = 24 * 3600.0
_STREAM_IN_WORK = 16
_STREAM_BYTES_IN_WORK = 64 << 20
_LOAD_TIMEOUT_S = 1800.0
#: Bytes of vectors: a dense one, and that of one character of a multi-vector (four characters a token).
_DENSE_BYTES, _MULTI_VECTOR_BYTES_A_CHAR = 4_096, 1_024
#: Replies with more elements are made off the event loop.
_INLINE_ELEMENTS = 1 << 18
_TOKENIZER_PIECE_BYTES = 1 << 20


class EmbedderServicer(stubs.EmbedderServiceServicer):
    def __init__(self, edge: Edge, engine: EmbedderEngine, *, max_texts: int, max_reply_bytes: int) -> None:
        self.edge = edge
        self._engine = engine
        self._max_texts = max_texts
        self._max_reply_bytes = max_reply_bytes

    @rpc(Role.READER)
    async def Embed(self, call: Call, request: pb.EmbedRequest) -> pb.EmbedResponse:
        return await self._embed(call, request, call.deadline)

    @rpc(Role.READER, timeout_s=_STREAM_TIMEOUT_S)
    async def EmbedStream(
        self, call: Call, request: AsyncIterator[pb.EmbedStreamRequest]
    ) -> AsyncIterator[pb.EmbedStreamResponse]:
        replies = in_order(
            request,
            lambda one: self._embed_one(call, one),
            in_work=_STREAM_IN_WORK,
            weight=bytes_in_work,
            max_weight=_STREAM_BYTES_IN_WORK,
        )
        async for reply in replies:
            yield reply

    @rpc(Role.READER)
    async def Tokenize(self, call: Call, request: pb.TokenizeRequest) -> pb.TokenizeResponse:
        tokenize_in(request, max_texts=self._max_texts)
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

    @rpc(Role.ADMIN, timeout_s=_LOAD_TIMEOUT_S)
    async def LoadModel(self, call: Call, request: pb.LoadModelRequest) -> pb.LoadModelResponse:
        return pb.LoadModelResponse(model=model_out(await self._engine.load(required("model", request.model))))

    @rpc(Role.ADMIN)
    async def UnloadModel(self, call: Call, request: pb.UnloadModelRequest) -> pb.UnloadModelResponse:
        return pb.UnloadModelResponse(model=model_out(await self._engine.unload(required("model", request.model))))

    async def _embed(self, call: Call, request: pb.EmbedRequest, deadline: Deadline) -> pb.EmbedResponse:
        asked = embed_in(request, max_texts=self._max_texts)
        reply = await self._engine.embed(asked, deadline, client=call.client)
        out = partial(embed_out, asked, reply, max_bytes=self._max_reply_bytes)
        return out() if _elements(reply) <= _INLINE_ELEMENTS else await asyncio.to_thread(out)

    async def _embed_one(self, call: Call, one: pb.EmbedStreamRequest) -> pb.EmbedStreamResponse:
        deadline = call.deadline.within(self.edge.default_timeout_s)
        try:
            return pb.EmbedStreamResponse(id=one.id, response=await self._embed(call, one.request, deadline))
        except ServiceError as error:
            return pb.EmbedStreamResponse(id=one.id, error=item_error(error))


def bytes_in_work(one: pb.EmbedStreamRequest) -> int:
    """About what a request of a stream and its reply take."""
    texts = one.request.texts
    chars = sum(map(len, texts))
    vectors = _MULTI_VECTOR_BYTES_A_CHAR * chars if one.request.HasField("multi_vector") else 0
    return 2 * one.ByteSize() + _DENSE_BYTES * len(texts) + vectors


def _elements(reply: EmbedReply) -> int:
    dense = 0 if reply.dense is None else reply.dense.size
    return dense + sum(matrix.size for matrix in reply.multi_vector or ())
