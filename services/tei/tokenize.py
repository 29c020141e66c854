"""tei.v1.Tokenize: the tokens of a text and the text of tokens, by the tokenizer of the default model."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TypeVar

from services.common.auth import Role
from services.common.errors import FieldViolation, InvalidRequest, Reason
from services.common.ordered import in_order
from services.common.rpc import Call, Edge, rpc
from services.inference.tokenizer import Piece, TextTokenizer
from services.tei.convert import prompt_in
from services.tei.embed import STREAM_TIMEOUT_S
from services.tei.models import Offers
from services.tei.turns import Turns
from services.tei.v1 import tei_pb2 as pb
from services.tei.v1 import tei_pb2_grpc as stubs

#: Characters of a text, tokens of a list: a second or so of work.
MAX_SIZE = 1 << 20
#: Up to this many the work takes less than handing it to a thread.
_INLINE_SIZE = 4_000
_IN_WORK = 4

T = TypeVar("T")


class TeiTokenizeServicer(stubs.TokenizeServicer):
    def __init__(self, edge: Edge, offers: Offers) -> None:
        self.edge = edge
        self._offers = offers
        self._turns = Turns(edge.clock)

    @rpc(Role.READER)
    async def Tokenize(self, call: Call, request: pb.EncodeRequest) -> pb.EncodeResponse:
        return await self._encode(call, request)

    @rpc(Role.READER)
    async def Decode(self, call: Call, request: pb.DecodeRequest) -> pb.DecodeResponse:
        return await self._decode(call, request)

    @rpc(Role.READER, timeout_s=STREAM_TIMEOUT_S)
    async def TokenizeStream(
        self, call: Call, request: AsyncIterator[pb.EncodeRequest]
    ) -> AsyncIterator[pb.EncodeResponse]:
        async for reply in in_order(request, lambda one: self._encode(call, one), in_work=_IN_WORK):
            yield reply

    @rpc(Role.READER, timeout_s=STREAM_TIMEOUT_S)
    async def DecodeStream(
        self, call: Call, request: AsyncIterator[pb.DecodeRequest]
    ) -> AsyncIterator[pb.DecodeResponse]:
        async for reply in in_order(request, lambda one: self._decode(call, one), in_work=_IN_WORK):
            yield reply

    async def _encode(self, call: Call, request: pb.EncodeRequest) -> pb.EncodeResponse:
        if not request.inputs:
            raise InvalidRequest.of(FieldViolation(field="inputs", description="is empty"), reason=Reason.EMPTY_INPUT)
        _bounded("inputs", len(request.inputs), "characters")
        async with self._offers.default() as engine:
            prompt = prompt_in(request.prompt_name if request.HasField("prompt_name") else None, engine.card)
        work = partial(_encoded, engine.tokenizer, prompt + request.inputs, request.add_special_tokens)
        return await self._run(call, work, len(request.inputs))

    async def _decode(self, call: Call, request: pb.DecodeRequest) -> pb.DecodeResponse:
        if not request.ids:
            raise InvalidRequest.of(FieldViolation(field="ids", description="is empty"), reason=Reason.EMPTY_INPUT)
        _bounded("ids", len(request.ids), "tokens")
        async with self._offers.default() as engine:  # its tokenizer lives as long as it is used
            work = partial(_decoded, engine.tokenizer, list(request.ids), request.skip_special_tokens)
        return await self._run(call, work, len(request.ids))

    async def _run(self, call: Call, work: Callable[[], T], size: int) -> T:
        return work() if size <= _INLINE_SIZE else await self._turns.run(work, call.deadline)


def _encoded(tokenizer: TextTokenizer, text: str, special_tokens: bool) -> pb.EncodeResponse:
    return pb.EncodeResponse(
        tokens=[_token(piece, text) for piece in tokenizer.pieces(text, special_tokens=special_tokens)]
    )


def _token(piece: Piece, text: str) -> pb.SimpleToken:
    if piece.special:
        return pb.SimpleToken(id=piece.token_id, text=piece.name, special=True)
    return pb.SimpleToken(id=piece.token_id, text=text[piece.start : piece.stop], start=piece.start, stop=piece.stop)


def _decoded(tokenizer: TextTokenizer, ids: list[int], skip_special_tokens: bool) -> pb.DecodeResponse:
    most = tokenizer.vocabulary_size
    if (wrong := next((place for place, token in enumerate(ids) if token >= most), None)) is not None:
        raise InvalidRequest.of(
            FieldViolation(field=f"ids[{wrong}]", description=f"is {ids[wrong]}; the vocabulary has {most} tokens")
        )
    return pb.DecodeResponse(text=tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))


def _bounded(field: str, size: int, what: str) -> None:
    if size > MAX_SIZE:
        raise InvalidRequest.of(
            FieldViolation(field=field, description=f"has {size} {what}, at most {MAX_SIZE} are allowed"),
            reason=Reason.INPUT_TOO_LONG,
        )
