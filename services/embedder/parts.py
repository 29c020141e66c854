"""What each model, and BM25, gave for the texts of a call, and how it becomes one reply."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.common.errors import ServiceError
from services.embedder.bm25 import Bm25Encoder
from services.embedder.dense import cut
from services.embedder.types import EmbedCall, SparseOutput, TextReport, Timing
from services.inference.engine import EmbedOutcome, ItemReport
from services.inference.errors import EmptyInput, InferenceFailed, InputTooLong
from services.inference.types import FloatArray, InputType, SparseVector

#: The analysis of Chinese takes some 200 bytes a character while it lasts; no passage is longer than this.
BM25_MOST_CHARS = 1_000_000
_NO_TERMS = SparseVector(indices=np.zeros(0, np.uint32), values=np.zeros(0, np.float32))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """The outputs of one model for all texts, as in `EmbedReply`; a row may have a value beside an error."""

    reports: tuple[TextReport, ...]
    timing: Timing
    dense: FloatArray | None = None
    sparse: tuple[SparseVector, ...] | None = None
    multi_vector: tuple[FloatArray, ...] | None = None


def model_part(outcome: EmbedOutcome, *, dimensions: int) -> Part:
    """What a model computed; its dense vectors cut to `dimensions`, if that is not 0."""
    dense = outcome.dense
    if dense is not None and dimensions:
        dense = cut(dense, dimensions)
    reports = [_report(item) for item in outcome.items]
    for row in _without_direction(dense if dimensions else None, outcome.multi_vector):
        if reports[row].error is None:
            reports[row] = reports[row]._replace(error=_nothing_left(dimensions))
    spent = outcome.timing
    return Part(
        reports=tuple(reports),
        timing=Timing(tokenize_ms=spent.tokenize_ms, queue_ms=spent.queue_ms, inference_ms=spent.inference_ms),
        dense=dense,
        sparse=outcome.sparse,
        multi_vector=outcome.multi_vector,
    )


def bm25_part(bm25: Bm25Encoder, call: EmbedCall, asked: SparseOutput) -> Part:
    started = time.perf_counter()
    rows: list[SparseVector] = []
    reports: list[TextReport] = []
    for text in call.texts:
        if not text or text.isspace():
            rows.append(_NO_TERMS)
            reports.append(TextReport(error=EmptyInput("the text is empty or white space only")))
            continue
        if len(text) > BM25_MOST_CHARS:
            rows.append(_NO_TERMS)
            reports.append(TextReport(error=_too_many_chars(text)))
            continue
        if call.input_type is InputType.QUERY:
            vector = bm25.query_vector(text, language=asked.language)
        else:
            vector = bm25.passage_vector(text, average_length=asked.bm25_average_length, language=asked.language)
        rows.append(SparseVector(indices=vector.indices, values=vector.values))
        reports.append(TextReport(bm25_length=vector.length))
    timing = Timing(tokenize_ms=(time.perf_counter() - started) * 1000)
    return Part(reports=tuple(reports), timing=timing, sparse=tuple(rows))


def merged(parts: Sequence[Part]) -> Part:
    """All outputs beside each other. A text failed if any of its outputs did, and then has none of them."""
    if len(parts) == 1 and not any(report.error for report in parts[0].reports):
        return parts[0]
    reports = tuple(_of_one_text(rows) for rows in zip(*(part.reports for part in parts), strict=True))
    failed = [row for row, report in enumerate(reports) if report.error is not None]
    dense = next((part.dense for part in parts if part.dense is not None), None)
    sparse = next((part.sparse for part in parts if part.sparse is not None), None)
    multi_vector = next((part.multi_vector for part in parts if part.multi_vector is not None), None)
    if dense is not None:
        dense[failed] = 0.0
    if sparse is not None and failed:
        sparse = tuple(vector if reports[row].error is None else _NO_TERMS for row, vector in enumerate(sparse))
    if multi_vector is not None and failed:
        multi_vector = tuple(
            matrix if reports[row].error is None else matrix[:0] for row, matrix in enumerate(multi_vector)
        )
    return Part(reports=reports, timing=_timing(parts), dense=dense, sparse=sparse, multi_vector=multi_vector)


def _report(item: ItemReport) -> TextReport:
    original = item.original_token_count if item.truncated else 0
    return TextReport(item.error, item.token_count, item.truncated, original)


def _of_one_text(reports: Sequence[TextReport]) -> TextReport:
    return TextReport(
        error=next((report.error for report in reports if report.error is not None), None),
        token_count=max(report.token_count for report in reports),
        truncated=any(report.truncated for report in reports),
        original_token_count=max(report.original_token_count for report in reports),
        bm25_length=max(report.bm25_length for report in reports),
    )


def _timing(parts: Sequence[Part]) -> Timing:
    return Timing(
        tokenize_ms=sum(part.timing.tokenize_ms for part in parts),
        queue_ms=max(part.timing.queue_ms for part in parts),
        inference_ms=max(part.timing.inference_ms for part in parts),
    )


def _without_direction(dense: FloatArray | None, multi_vector: tuple[FloatArray, ...] | None) -> set[int]:
    """Rows that would be a zero vector once they are cut, or a multi-vector with one or without any."""
    rows: set[int] = set()
    if dense is not None:
        rows.update(np.flatnonzero(~dense.any(axis=1)).tolist())
    if multi_vector is not None:
        rows.update(row for row, matrix in enumerate(multi_vector) if not len(matrix) or not matrix.any(axis=1).all())
    return rows


def _too_many_chars(text: str) -> InputTooLong:
    return InputTooLong(
        f"the text has {len(text)} characters; BM25 takes {BM25_MOST_CHARS}: cut it into passages",
        metadata={"max_chars": str(BM25_MOST_CHARS)},
    )


def _nothing_left(dimensions: int) -> ServiceError:
    if dimensions:
        return InferenceFailed(
            f"the first {dimensions} elements of the vector of this text are zero: ask for more dimensions"
        )
    return InferenceFailed("the model gave no non-zero value for this input")
