"""tei.v1.Predict: there are no classifiers here, and every method says so."""

from collections.abc import AsyncIterator
from typing import NoReturn

from services.common.auth import Role
from services.common.rpc import Call, Edge, rpc
from services.inference.errors import WrongModelKind
from services.tei.v1 import tei_pb2 as pb
from services.tei.v1 import tei_pb2_grpc as stubs


class TeiPredictServicer(stubs.PredictServicer):
    def __init__(self, edge: Edge) -> None:
        self.edge = edge

    @rpc(Role.READER)
    async def Predict(self, call: Call, request: pb.PredictRequest) -> pb.PredictResponse:
        _refuse()

    @rpc(Role.READER)
    async def PredictPair(self, call: Call, request: pb.PredictPairRequest) -> pb.PredictResponse:
        _refuse()

    @rpc(Role.READER)
    async def PredictStream(
        self, call: Call, request: AsyncIterator[pb.PredictRequest]
    ) -> AsyncIterator[pb.PredictResponse]:
        _refuse()
        yield  # makes it a stream

    @rpc(Role.READER)
    async def PredictPairStream(
        self, call: Call, request: AsyncIterator[pb.PredictPairRequest]
    ) -> AsyncIterator[pb.PredictResponse]:
        _refuse()
        yield  # makes it a stream


def _refuse() -> NoReturn:
    raise WrongModelKind(
        "this server has no classification model: for the relevance of a text to a query use Rerank, for vectors Embed"
    )
