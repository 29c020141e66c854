"""Outputs of several sources become one reply; what has no value is an error, and never a vector of zeros."""

import numpy as np
import pytest

from services.common.errors import ServiceError
from services.embedder.bm25 import Bm25Encoder
from services.embedder.parts import BM25_MOST_CHARS, Part, bm25_part, merged, model_part
from services.embedder.types import EmbedCall, SparseOutput, TextReport, Timing
from services.inference.engine import EmbedOutcome, InferenceTiming, ItemReport
from services.inference.errors import InputTooLong
from services.inference.types import InputType, Lane, SparseVector, Truncation


def outcome(**outputs) -> EmbedOutcome:
    (rows,) = {len(values) for values in outputs.values()}
    values = {"dense": None, "sparse": None, "multi_vector": None, **outputs}
    timing = InferenceTiming(tokenize_ms=1, queue_ms=2, inference_ms=3)
    return EmbedOutcome(**values, items=tuple(ItemReport(token_count=4) for _ in range(rows)), timing=timing)


def errors(part: Part) -> list[str]:
    return [report.error.message if report.error else "" for report in part.reports]


def test_model_part_when_a_cut_leaves_nothing_then_the_text_has_an_error_that_says_what_to_do():
    dense = np.array([[0, 0, 0.6, 0.8], [0.6, 0, 0, 0.8]], np.float32)
    part = model_part(outcome(dense=dense), dimensions=2)
    assert errors(part) == [
        "the first 2 elements of the vector of this text are zero: ask for more dimensions",
        "",
    ]
    np.testing.assert_allclose(part.dense, [[0, 0], [1, 0]])


@pytest.mark.parametrize("bad", [np.zeros((0, 2), np.float32), np.array([[1, 0], [0, 0]], np.float32)])
def test_model_part_when_a_token_has_no_vector_then_the_text_has_an_error(bad: np.ndarray):
    good = np.array([[0, 1]], np.float32)
    part = merged([model_part(outcome(multi_vector=(good, bad)), dimensions=0)])
    assert errors(part) == ["", "the model gave no non-zero value for this input"]
    assert [len(matrix) for matrix in part.multi_vector] == [1, 0]


def test_merged_when_one_part_failed_then_the_text_has_nothing_of_the_others_and_times_are_of_all():
    failure: ServiceError = InputTooLong("too long")
    dense = Part(
        reports=(TextReport(token_count=3), TextReport(token_count=5, truncated=True, original_token_count=9)),
        timing=Timing(tokenize_ms=1, queue_ms=5, inference_ms=2),
        dense=np.ones((2, 2), np.float32),
    )
    terms = SparseVector(indices=np.array([7], np.uint32), values=np.ones(1, np.float32))
    sparse = Part(
        reports=(TextReport(error=failure), TextReport(bm25_length=6)),
        timing=Timing(tokenize_ms=2, queue_ms=1, inference_ms=4),
        sparse=(terms, terms),
    )
    part = merged([dense, sparse])
    assert part.reports == (
        TextReport(error=failure, token_count=3),
        TextReport(token_count=5, truncated=True, original_token_count=9, bm25_length=6),
    )
    np.testing.assert_array_equal(part.dense, [[0, 0], [1, 1]])
    assert [len(vector.indices) for vector in part.sparse] == [0, 1]
    assert part.timing == Timing(tokenize_ms=3, queue_ms=5, inference_ms=4)


def test_bm25_part_when_a_text_is_beyond_what_memory_bears_then_it_alone_fails_and_says_the_limit():
    asked = SparseOutput(model="", bm25_average_length=10.0, language="en")
    call = EmbedCall(
        texts=("leave days", "x" * (BM25_MOST_CHARS + 1)), input_type=InputType.PASSAGE, truncation=Truncation.RIGHT,
        lane=Lane.BULK, sparse=asked,
    )  # fmt: skip
    part = bm25_part(Bm25Encoder(), call, asked)
    assert [type(report.error) for report in part.reports] == [type(None), InputTooLong]
    assert str(BM25_MOST_CHARS) in errors(part)[1]
    assert [len(row.indices) > 0 for row in part.sparse] == [True, False]
