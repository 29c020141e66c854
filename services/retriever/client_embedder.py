"""The embedder as the retriever sees it, over the client that everyone else uses too."""

import grpc
import numpy as np
from pergamon.client import AsyncClient, DeadlineExceededError, PergamonError
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.type.v1.item_error_pb2 import ItemError
from pergamon.type.v1.vectors_pb2 import DenseMatrix, SparseMatrix

from services.common.errors import DeadlineExceeded, NotFound, Overloaded, Reason, ServiceError, Unavailable
from services.index.types import Floats, SparseVector
from services.retriever.types import EmbeddingNeed, QueryVectors

#: Reasons of the embedder that are ours too, as they stand.
_PASSED_ON = frozenset(
    {
        Reason.MODEL_NOT_AVAILABLE,
        Reason.MODEL_INVALID,
        Reason.MODEL_NOT_LOADED,
        Reason.MODEL_LIMIT,
        Reason.WRONG_MODEL_KIND,
        Reason.INFERENCE_FAILED,
        Reason.EXTRA_NOT_INSTALLED,
    }
)
_BY_NAME = {reason.name: reason for reason in _PASSED_ON}


class ClientEmbedder:
    """`retriever.ports.QueryEmbedder`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def embed(self, query: str, need: EmbeddingNeed, *, timeout_s: float) -> QueryVectors:
        try:
            reply = await self._client.embed(
                [query],
                input_type=pb.INPUT_TYPE_QUERY,
                dense=need.dense_model is not None,
                dense_model=need.dense_model or "",
                sparse=need.sparse_model is not None,
                sparse_model=need.sparse_model or "",
                language=need.language,
                truncation=pb.TRUNCATION_RIGHT,
                priority=pb.PRIORITY_INTERACTIVE,
                timeout_s=timeout_s,
            )
        except PergamonError as error:
            raise _translated(error, need.dense_model or need.sparse_model or "") from error
        report = reply.reports[0] if reply.reports else pb.EmbedReport()
        if report.HasField("error"):
            raise _item_failure(report.error)
        return QueryVectors(
            dense=_dense_row(reply.dense) if need.dense_model is not None else None,
            sparse=_sparse_row(reply.sparse) if need.sparse_model is not None else None,
            truncated=report.truncated,
        )


def _dense_row(matrix: DenseMatrix) -> Floats:
    row = np.frombuffer(matrix.data, dtype="<f4")
    if matrix.rows != 1 or row.shape != (matrix.dimensions,):
        raise ServiceError(f"the embedder answered {matrix.rows} vectors of {len(matrix.data)} bytes for one query")
    return row


def _sparse_row(matrix: SparseMatrix) -> SparseVector:
    indices, values = np.frombuffer(matrix.indices, dtype="<u4"), np.frombuffer(matrix.values, dtype="<f4")
    if indices.shape != values.shape:
        raise ServiceError(f"the embedder answered {len(indices)} terms and {len(values)} weights for one query")
    return SparseVector(indices=indices, values=values)


def _item_failure(error: ItemError) -> ServiceError:
    return ServiceError(
        f"the query could not be embedded: {error.message}",
        reason=_BY_NAME.get(error.reason, Reason.INFERENCE_FAILED),
    )


def _translated(error: PergamonError, model: str) -> ServiceError:
    """The embedder's answer as an error of this service; what is not the request's fault is an outage."""
    if error.reason == Reason.MODEL_NOT_FOUND.name:
        return NotFound.model(model, tuple(filter(None, error.metadata.get("allowed", "").split(", "))))
    if error.reason == Reason.DEADLINE_UNREACHABLE.name:
        return DeadlineExceeded(
            "the embedder is too busy to answer before the deadline", reason=Reason.DEADLINE_UNREACHABLE
        )
    if known := _BY_NAME.get(error.reason):
        return ServiceError(f"the query could not be embedded: {error.message}", reason=known)
    if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Overloaded("the embedder is overloaded; retry later", retry_after_s=error.retry_after_s or 1.0)
    if isinstance(error, DeadlineExceededError):
        return DeadlineExceeded("the query was not embedded in time")
    return Unavailable(
        f"the embedder cannot be used now: {error.message}",
        reason=Reason.EMBEDDER_UNAVAILABLE,
        retry_after_s=error.retry_after_s or 1.0,
    )
