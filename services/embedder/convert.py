"""The embedder's messages between the wire and the inside."""

import math

import numpy as np
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.type.v1 import model_pb2, vectors_pb2

from services.common.errors import FieldViolation, InvalidRequest, Reason
from services.common.status import item_error
from services.common.validation import Violations, require_room
from services.embedder.dense import pack
from services.embedder.models import ModelInfo
from services.embedder.types import (
    DataType,
    DenseOutput,
    EmbedCall,
    EmbedReply,
    MultiVectorOutput,
    SparseOutput,
    TextReport,
    Warned,
)
from services.inference.cards import ModelKind
from services.inference.types import FloatArray, InputType, Lane, Output, SparseVector, Truncation

_MAX_INSTRUCTION_CHARS = 2_000
#: Of a text to tokenise, and of those of a call: it is done in full, in memory and on a thread that cannot be stopped.
_MAX_TOKENIZE_CHARS, _MAX_TOKENIZE_CHARS_A_CALL = 1 << 20, 4 << 20
#: What a reply holds beside its vectors: a report for each text, names, timing.
_REPORT_BYTES, _FRAME_BYTES = 64, 4_096

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
    vectors_pb2.DATA_TYPE_BFLOAT16: DataType.BFLOAT16,
    vectors_pb2.DATA_TYPE_INT8: DataType.INT8,
    vectors_pb2.DATA_TYPE_UBINARY: DataType.UBINARY,
}
_DATA_TYPES_OUT = {own: wire for wire, own in _DATA_TYPES.items() if wire}
_WARNINGS = {Warned.DIMENSIONS_NOT_CLAIMED: pb.EMBED_WARNING_DIMENSIONS_NOT_CLAIMED}
_OUTPUTS = {
    Output.DENSE: model_pb2.MODEL_OUTPUT_DENSE,
    Output.SPARSE: model_pb2.MODEL_OUTPUT_SPARSE,
    Output.MULTI_VECTOR: model_pb2.MODEL_OUTPUT_MULTI_VECTOR,
    Output.LOGIT: model_pb2.MODEL_OUTPUT_LOGIT,
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
    dense_type = _DATA_TYPES.get(request.dense.data_type)
    multi_type = _DATA_TYPES.get(request.multi_vector.data_type)
    found.check(input_type is not None, "input_type", f"unknown value {request.input_type}")
    found.check(truncation is not None, "truncation", f"unknown value {request.truncation}")
    found.check(lane is not None, "priority", f"unknown value {request.priority}")
    found.check(dense_type is not None, "dense.data_type", f"unknown value {request.dense.data_type}")
    found.check(multi_type is not None, "multi_vector.data_type", f"unknown value {request.multi_vector.data_type}")
    wanted = [name for name in ("dense", "sparse", "multi_vector") if request.HasField(name)]
    found.check(bool(wanted), "dense", "set dense, sparse, multi_vector, or several of them")
    average = request.sparse.bm25_average_length
    found.check(
        math.isfinite(average) and average >= 0, "sparse.bm25_average_length", f"is {average}, must be positive"
    )
    if "sparse" in wanted and request.sparse.model in ("", "bm25") and input_type is InputType.PASSAGE:
        found.check(average > 0, "sparse.bm25_average_length", "is required for passages, in terms")
    found.length("sparse.language", request.sparse.language, 35)
    found.length("instruction", request.instruction, _MAX_INSTRUCTION_CHARS)
    found.raise_if_any()
    dense = DenseOutput(
        model=request.dense.model,
        data_type=dense_type or DataType.FLOAT32,
        dimensions=request.dense.dimensions,
    )
    sparse = SparseOutput(model=request.sparse.model, bm25_average_length=average, language=request.sparse.language)
    return EmbedCall(
        texts=tuple(request.texts),
        input_type=input_type or InputType.PASSAGE,
        truncation=truncation or Truncation.FAIL,
        lane=lane or Lane.INTERACTIVE,
        dense=dense if "dense" in wanted else None,
        sparse=sparse if "sparse" in wanted else None,
        multi_vector=MultiVectorOutput(model=request.multi_vector.model, data_type=multi_type or DataType.FLOAT32)
        if "multi_vector" in wanted
        else None,
        instruction=request.instruction if request.HasField("instruction") else None,
    )


def texts_in(count: int, max_texts: int) -> None:
    if count == 0:
        raise InvalidRequest.of(FieldViolation(field="texts", description="is empty; send at least one text"))
    if count > max_texts:
        raise InvalidRequest.of(
            FieldViolation(field="texts", description=f"holds {count} texts, at most {max_texts} are allowed"),
            reason=Reason.BATCH_TOO_LARGE,
        )


def tokenize_in(request: pb.TokenizeRequest, *, max_texts: int) -> None:
    """Raises BATCH_TOO_LARGE for too many texts, INPUT_TOO_LONG for too many characters."""
    texts_in(len(request.texts), max_texts)
    sizes = [len(text) for text in request.texts]
    long = [number for number, size in enumerate(sizes) if size > _MAX_TOKENIZE_CHARS]
    if long:
        raise InvalidRequest.of(
            *(
                FieldViolation(
                    field=f"texts[{number}]",
                    description=f"has {sizes[number]} characters, at most {_MAX_TOKENIZE_CHARS} are allowed",
                )
                for number in long
            ),
            reason=Reason.INPUT_TOO_LONG,
        )
    if sum(sizes) > _MAX_TOKENIZE_CHARS_A_CALL:
        raise InvalidRequest.of(
            FieldViolation(
                field="texts",
                description=f"hold {sum(sizes)} characters, at most {_MAX_TOKENIZE_CHARS_A_CALL} are allowed in a call",
            ),
            reason=Reason.INPUT_TOO_LONG,
        )


def input_type_in(value: pb.InputType.ValueType) -> InputType:
    if value not in _INPUT_TYPES:
        raise InvalidRequest.of(FieldViolation(field="input_type", description=f"unknown value {value}"))
    return _INPUT_TYPES[value]


def embed_out(call: EmbedCall, reply: EmbedReply, *, max_bytes: int) -> pb.EmbedResponse:
    """Raises MESSAGE_TOO_LARGE for a reply that could not be sent."""
    dense = sparse = multi_vector = None
    size = _FRAME_BYTES + _REPORT_BYTES * len(reply.reports)
    if reply.dense is not None and call.dense is not None:
        dense = _matrix_out(reply.dense, call.dense.data_type)
        size += len(dense.data) + len(dense.scales)
    if reply.sparse is not None:
        sparse = _sparse_out(reply.sparse)
        size += len(sparse.indices) + len(sparse.values)
    if reply.multi_vector is not None and call.multi_vector is not None:
        multi_vector = _multi_vector_out(reply.multi_vector, call.multi_vector.data_type)
        size += len(multi_vector.vectors.data) + len(multi_vector.vectors.scales)
    require_room(size, max_bytes)
    return pb.EmbedResponse(
        dense=dense,
        sparse=sparse,
        multi_vector=multi_vector,
        reports=[_report_out(report) for report in reply.reports],
        dense_model=reply.dense_model,
        sparse_model=reply.sparse_model,
        multi_vector_model=reply.multi_vector_model,
        warnings=[_WARNINGS[warned] for warned in reply.warnings],
        timing=model_pb2.InferenceTiming(
            tokenize_ms=reply.timing.tokenize_ms,
            queue_ms=reply.timing.queue_ms,
            inference_ms=reply.timing.inference_ms,
            total_ms=reply.timing.total_ms,
        ),
    )


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
        outputs=sorted(_OUTPUTS[output] for output in card.outputs),
        matryoshka_dimensions=card.matryoshka_dimensions,
        multi_vector_dimensions=card.multi_vector_dimensions,
    )


def _matrix_out(matrix: FloatArray, data_type: DataType) -> vectors_pb2.DenseMatrix:
    rows, dimensions = matrix.shape
    packed = pack(matrix, data_type)
    return vectors_pb2.DenseMatrix(
        data=packed.data,
        rows=rows,
        dimensions=dimensions,
        data_type=_DATA_TYPES_OUT[data_type],
        scales=packed.scales,
    )


def _multi_vector_out(matrices: tuple[FloatArray, ...], data_type: DataType) -> vectors_pb2.MultiVectorMatrix:
    offsets = np.cumsum([0, *map(len, matrices)])
    return vectors_pb2.MultiVectorMatrix(
        vectors=_matrix_out(np.concatenate(matrices), data_type), offsets=offsets.tolist()
    )


def _sparse_out(rows: tuple[SparseVector, ...]) -> vectors_pb2.SparseMatrix:
    offsets = np.cumsum([0, *(len(row.indices) for row in rows)])
    return vectors_pb2.SparseMatrix(
        offsets=offsets.tolist(),
        indices=b"".join(row.indices.astype("<u4", copy=False).tobytes() for row in rows),
        values=b"".join(row.values.astype("<f4", copy=False).tobytes() for row in rows),
    )


def _report_out(report: TextReport) -> pb.EmbedReport:
    if report == (None, report.token_count, False, 0, 0):
        return pb.EmbedReport(token_count=report.token_count)  # most of them; each field given costs time
    return pb.EmbedReport(
        error=item_error(report.error) if report.error else None,
        token_count=report.token_count,
        truncated=report.truncated,
        bm25_length=report.bm25_length,
        original_token_count=report.original_token_count,
    )
