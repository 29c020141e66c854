"""tei.v1.Embed: one text a message, to a dense vector, to weights of terms, or to a vector a token."""

from collections.abc import AsyncIterator

import numpy as np

from services.common.auth import Role
from services.common.ordered import in_order
from services.common.rpc import Call, Edge, rpc
from services.common.validation import Violations, require_room
from services.inference.engine import EmbedOutcome, InferenceEngine
from services.inference.errors import InferenceFailed
from services.inference.types import FloatArray, InputType, Lane, Output, Truncation
from services.tei.convert import Spent, dimensions_in, placed, prompt_in, text_in
from services.tei.headers import with_headers
from services.tei.models import Offers
from services.tei.v1 import tei_pb2 as pb
from services.tei.v1 import tei_pb2_grpc as stubs

STREAM_TIMEOUT_S = 24 * 3600.0
#: Messages of one stream in work: enough to fill passes. Their bytes are bounded too, for memory's sake.
_IN_WORK = 256
_IN_WORK_BYTES = 16 << 20
#: The same where every token has a vector: a reply is a few thousand times as large as its text.
_ALL_IN_WORK = 64
_ALL_IN_WORK_BYTES = 64 << 10
_NOT_UNIT = "false is not supported: vectors are of unit length; leave it unset"


class TeiEmbedServicer(stubs.EmbedServicer):
    """Unary calls go before streams, which are for bulk. The first text of a stream that fails ends it."""

    def __init__(self, edge: Edge, offers: Offers) -> None:
        self.edge = edge
        self.offers = offers

    @with_headers
    @rpc(Role.READER)
    async def Embed(self, call: Call, request: pb.EmbedRequest) -> pb.EmbedResponse:
        return await self._dense(call, request, Lane.INTERACTIVE)

    @with_headers
    @rpc(Role.READER)
    async def EmbedSparse(self, call: Call, request: pb.EmbedSparseRequest) -> pb.EmbedSparseResponse:
        return await self._sparse(call, request, Lane.INTERACTIVE)

    @with_headers
    @rpc(Role.READER)
    async def EmbedAll(self, call: Call, request: pb.EmbedAllRequest) -> pb.EmbedAllResponse:
        return await self._all(call, request, Lane.INTERACTIVE)

    @rpc(Role.READER, timeout_s=STREAM_TIMEOUT_S)
    async def EmbedStream(self, call: Call, request: AsyncIterator[pb.EmbedRequest]) -> AsyncIterator[pb.EmbedResponse]:
        async for reply in in_order(
            request, lambda one: self._dense(call, one, Lane.BULK),
            in_work=_IN_WORK, weight=_bytes_of, max_weight=_IN_WORK_BYTES,
        ):  # fmt: skip
            yield reply

    @rpc(Role.READER, timeout_s=STREAM_TIMEOUT_S)
    async def EmbedSparseStream(
        self, call: Call, request: AsyncIterator[pb.EmbedSparseRequest]
    ) -> AsyncIterator[pb.EmbedSparseResponse]:
        async for reply in in_order(
            request, lambda one: self._sparse(call, one, Lane.BULK),
            in_work=_IN_WORK, weight=_bytes_of, max_weight=_IN_WORK_BYTES,
        ):  # fmt: skip
            yield reply

    @rpc(Role.READER, timeout_s=STREAM_TIMEOUT_S)
    async def EmbedAllStream(
        self, call: Call, request: AsyncIterator[pb.EmbedAllRequest]
    ) -> AsyncIterator[pb.EmbedAllResponse]:
        async for reply in in_order(
            request, lambda one: self._all(call, one, Lane.BULK),
            in_work=_ALL_IN_WORK, weight=_bytes_of, max_weight=_ALL_IN_WORK_BYTES,
        ):  # fmt: skip
            yield reply

    async def _dense(self, call: Call, request: pb.EmbedRequest, lane: Lane) -> pb.EmbedResponse:
        spent, found = Spent.now(len(request.inputs)), Violations()
        truncation = text_in(request, found)
        found.check(not request.HasField("normalize") or request.normalize, "normalize", _NOT_UNIT)
        found.raise_if_any()
        async with self.offers.embedder(Output.DENSE) as engine:
            dimensions = dimensions_in(request, engine.card)
            outcome = await self._run(call, engine, request, truncation, Output.DENSE, lane)
        assert outcome.dense is not None
        spent.add(outcome.timing, outcome.items[0].token_count)
        return pb.EmbedResponse(embeddings=_cut(outcome.dense[0], dimensions), metadata=spent.out())

    async def _sparse(self, call: Call, request: pb.EmbedSparseRequest, lane: Lane) -> pb.EmbedSparseResponse:
        spent, found = Spent.now(len(request.inputs)), Violations()
        truncation = text_in(request, found)
        found.raise_if_any()
        async with self.offers.embedder(Output.SPARSE) as engine:
            outcome = await self._run(call, engine, request, truncation, Output.SPARSE, lane)
        assert outcome.sparse is not None
        spent.add(outcome.timing, outcome.items[0].token_count)
        terms = zip(outcome.sparse[0].indices.tolist(), outcome.sparse[0].values.tolist(), strict=True)
        return pb.EmbedSparseResponse(
            sparse_embeddings=[pb.SparseValue(index=index, value=value) for index, value in terms],
            metadata=spent.out(),
        )

    async def _all(self, call: Call, request: pb.EmbedAllRequest, lane: Lane) -> pb.EmbedAllResponse:
        spent, found = Spent.now(len(request.inputs)), Violations()
        truncation = text_in(request, found)
        found.raise_if_any()
        async with self.offers.embedder(Output.MULTI_VECTOR) as engine:
            outcome = await self._run(call, engine, request, truncation, Output.MULTI_VECTOR, lane)
        assert outcome.multi_vector is not None
        spent.add(outcome.timing, outcome.items[0].token_count)
        rows = outcome.multi_vector[0]
        require_room(rows.nbytes, self.offers.max_reply_bytes)
        return pb.EmbedAllResponse(
            token_embeddings=[pb.TokenEmbedding(embeddings=row.tolist()) for row in rows], metadata=spent.out()
        )

    async def _run(
        self, call: Call, engine: InferenceEngine,
        request: pb.EmbedRequest | pb.EmbedSparseRequest | pb.EmbedAllRequest,
        truncation: Truncation, output: Output, lane: Lane,
    ) -> EmbedOutcome:  # fmt: skip
        """One text, waited for no longer than a call without a deadline of its own, also within a stream."""
        outcome = await engine.embed(
            [request.inputs],
            outputs=frozenset({output}),
            input_type=InputType.PASSAGE,
            prefix=prompt_in(request.prompt_name if request.HasField("prompt_name") else None, engine.card),
            truncation=truncation,
            lane=lane,
            deadline=call.deadline.within(self.edge.default_timeout_s) if lane is Lane.BULK else call.deadline,
            client=call.client,
        )
        if (error := outcome.items[0].error) is not None:
            raise placed(error, "inputs")
        return outcome


def _cut(vector: FloatArray, dimensions: int) -> list[float]:
    """The first `dimensions` values of a unit vector, of unit length again."""
    if dimensions == len(vector):
        return vector.tolist()
    head = vector[:dimensions].astype(np.float64)
    length = float(np.linalg.norm(head))
    if length == 0.0:
        raise InferenceFailed(f"the first {dimensions} values of the vector are all zero: it has no direction")
    return (head / length).tolist()


def _bytes_of(request: pb.EmbedRequest | pb.EmbedSparseRequest | pb.EmbedAllRequest) -> int:
    return request.ByteSize()
