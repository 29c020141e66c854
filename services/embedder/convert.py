"""The embedder's messages between the wire and the inside."""

import math

import numpy as np
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.type.v1 import model_pb2, vectors_pb2
from pergamon.type.v1.item_error_pb2 import ItemError

from services.common.errors import FieldViolation, InvalidRequest, Reason, ServiceError
from services.common.status import code_number, shown
from services.common.validation import Violations
from services.embedder.models import ModelInfo
from services.embedder.types import DataType, DenseOutput, EmbedCall, EmbedReply, SparseOutput, SparseRow, TextReport
from services.inference.cards import ModelKind
from services.inference.types import InputType, Lane, Truncation

_INPUT_TYPES = {
    pb.INPUT_TYPE_UNSPECIFIED: InputType.PASSAGE,
    pb.INPUT_TYPE_QUERY: InputType.QUERY,
    pb.INPUT_TYPE_PASSAGE: InputType.PASSAGE,
}
_TRUNCATIONS = {
    pb.TRUNCATION_UNSPECIFIED: Truncation.FAIL,
    pb.TRUNCATION_FAIL: Truncation.FAIL,
    pb.TRUNCATION_RIGHT: Truncation.RIGHT,
    pb.TRUNCATION_LEFT: Truncation.LEFT,
}
_LANES = {
    pb.PRIORITY_UNSPECIFIED: Lane.INTERACTIVE,
    pb.PRIORITY_INTERACTIVE: Lane.INTERACTIVE,
    pb.PRIORITY_BULK: Lane.BULK,
}
_DATA_TYPES = {
    vectors_pb2.DATA_TYPE_UNSPECIFIED: DataType.FLOAT32,
    vectors_pb2.DATA_TYPE_FLOAT32: DataType.FLOAT32,
    vectors_pb2.DATA_TYPE_FLOAT16: DataType.FLOAT16,
}
_KINDS = {
    ModelKind.DENSE: model_pb2.MODEL_KIND_DENSE,
    ModelKind.SPARSE: model_pb2.MODEL_KIND_SPARSE,
    ModelKind.RERANKER: model_pb2.MODEL_KIND_RERANKER,
}


def embed_in(request: pb.EmbedRequest, *, max_texts: int) -> EmbedCall:
    """Raises InvalidRequest with every violation; BATCH_TOO_LARGE when only the size is wrong."""
    texts_in(len(request.texts), max_texts)
    found = Violations()
    input_type = _INPUT_TYPES.get(request.input_type)
    truncation = _TRUNCATIONS.get(request.truncation)
    lane = _LANES.get(request.priority)
    data_type = _DATA_TYPES.get(request.dense.data_type)
    found.check(input_type is not None, "input_type", f"unknown value {request.input_type}")
    found.check(truncation is not None, "truncation", f"unknown value {request.truncation}")
    found.check(lane is not None, "priority", f"unknown value {request.priority}")
    found.check(data_type is not None, "dense.data_type", f"unknown value {request.dense.data_type}")
    wants_dense, wants_sparse = request.HasField("dense"), request.HasField("sparse")
    found.check(wants_dense or wants_sparse, "dense", "set dense, sparse, or both")
    average = request.sparse.bm25_average_length
    found.check(
        math.isfinite(average) and average >= 0, "sparse.bm25_average_length", f"is {average}, must be positive"
    )
    if wants_sparse and request.sparse.model in ("", "bm25") and input_type is InputType.PASSAGE:
        found.check(average > 0, "sparse.bm25_average_length", "is required for passages, in terms")
    found.length("sparse.language", request.sparse.language, 35)
    found.raise_if_any()
    return EmbedCall(
        texts=tuple(request.texts),
        input_type=input_type or InputType.PASSAGE,
        truncation=truncation or Truncation.FAIL,
        lane=lane or Lane.INTERACTIVE,
        dense=DenseOutput(model=request.dense.model, data_type=data_type or DataType.FLOAT32) if wants_dense else None,
        sparse=SparseOutput(
            model=request.sparse.model,
            bm25_average_length=average,
            language=request.sparse.language,
        )
        if wants_sparse
        else None,
    )


def texts_in(count: int, max_texts: int) -> None:
    if count == 0:
        raise InvalidRequest.of(FieldViolation(field="texts", description="is empty; send at least one text"))
    if count > max_texts:
        raise InvalidRequest.of(
            FieldViolation(field="texts", description=f"holds {count} texts, at most {max_texts} are allowed"),
            reason=Reason.BATCH_TOO_LARGE,
        )


def input_type_in(value: pb.InputType.ValueType) -> InputType:
    if value not in _INPUT_TYPES:
        raise InvalidRequest.of(FieldViolation(field="input_type", description=f"unknown value {value}"))
    return _INPUT_TYPES[value]


def embed_out(reply: EmbedReply, data_type: DataType) -> pb.EmbedResponse:
    return pb.EmbedResponse(
        dense=_matrix_out(reply.dense, data_type) if reply.dense is not None else None,
        sparse=_sparse_out(reply.sparse) if reply.sparse is not None else None,
        reports=[_report_out(report) for report in reply.reports],
        dense_model=reply.dense_model,
        sparse_model=reply.sparse_model,
        timing=model_pb2.InferenceTiming(
            tokenize_ms=reply.timing.tokenize_ms,
            queue_ms=reply.timing.queue_ms,
            inference_ms=reply.timing.inference_ms,
            total_ms=reply.timing.total_ms,
        ),
    )


def item_error(error: ServiceError) -> ItemError:
    return ItemError(code=code_number(error), reason=error.error_reason.name, message=shown(error))


def model_out(info: ModelInfo) -> model_pb2.Model:
    card = info.card
    return model_pb2.Model(
        name=card.name,
        aliases=card.aliases,
        kind=_KINDS[card.kind],
        dimensions=card.dimensions if card.kind is ModelKind.DENSE else 0,
        max_tokens=info.max_tokens,
        query_prefix=card.query_prefix,
        passage_prefix=card.passage_prefix,
        languages=card.languages,
        licence=card.licence,
        source=card.source,
        weights_sha256=card.sha256,
        tokenizer_sha256=card.tokenizer_sha256,
        tokenizer_version=info.tokenizer_version,
        loaded=info.loaded,
        passage_overhead_tokens=info.passage_overhead_tokens,
    )


def _matrix_out(
    matrix: np.ndarray[tuple[int, ...], np.dtype[np.float32]], data_type: DataType
) -> vectors_pb2.DenseMatrix:
    half = data_type is DataType.FLOAT16
    rows, dimensions = matrix.shape
    return vectors_pb2.DenseMatrix(
        data=matrix.astype("<f2" if half else "<f4", copy=False).tobytes(),
        rows=rows,
        dimensions=dimensions,
        data_type=vectors_pb2.DATA_TYPE_FLOAT16 if half else vectors_pb2.DATA_TYPE_FLOAT32,
    )


def _sparse_out(rows: tuple[SparseRow, ...]) -> vectors_pb2.SparseMatrix:
    offsets = np.cumsum([0, *(len(row.indices) for row in rows)])
    return vectors_pb2.SparseMatrix(
        offsets=offsets.tolist(),
        indices=b"".join(row.indices.astype("<u4", copy=False).tobytes() for row in rows),
        values=b"".join(row.values.astype("<f4", copy=False).tobytes() for row in rows),
    )


def _report_out(report: TextReport) -> pb.EmbedReport:
    return pb.EmbedReport(
        error=item_error(report.error) if report.error else None,
        token_count=report.token_count,
        truncated=report.truncated,
        bm25_length=report.bm25_length,
    )
