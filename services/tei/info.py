"""tei.v1.Info: what the default model is, and what the server takes."""

import os
from importlib.metadata import PackageNotFoundError, version

from services.common.auth import Role
from services.common.rpc import Call, Edge, rpc
from services.inference.cards import ModelKind
from services.tei.models import Offers
from services.tei.v1 import tei_pb2 as pb
from services.tei.v1 import tei_pb2_grpc as stubs

_DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


class TeiInfoServicer(stubs.InfoServicer):
    def __init__(self, edge: Edge, offers: Offers) -> None:
        self.edge = edge
        self.offers = offers

    @rpc(Role.READER)
    async def Info(self, call: Call, request: pb.InfoRequest) -> pb.InfoResponse:
        async with self.offers.default() as engine:
            card, limits, precision = engine.card, engine.limits, engine.precision
        reranks = card.kind is ModelKind.RERANKER
        return pb.InfoResponse(
            version=_version(),
            model_id=card.name,
            model_sha=card.sha256 or None,
            model_dtype=_DTYPES.get(precision, precision),
            model_type=pb.MODEL_TYPE_RERANKER if reranks else pb.MODEL_TYPE_EMBEDDING,
            max_concurrent_requests=self.edge.max_calls,
            max_input_length=card.max_tokens,
            max_batch_tokens=limits.budget_tokens,
            max_batch_requests=limits.max_batch_items,
            max_client_batch_size=(self.offers.reranking or self.offers.main).max_items,
            tokenization_workers=_default_threads(),
        )


def _version() -> str:
    try:
        return version("pergamon-server")
    except PackageNotFoundError:  # run from a checkout
        return "unknown"


def _default_threads() -> int:
    """Of the pool behind `asyncio.to_thread`, where texts are tokenised."""
    return min(32, (os.cpu_count() or 1) + 4)
