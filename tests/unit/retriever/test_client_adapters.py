"""What the retriever makes of the embedder's and the reranker's failures."""

import grpc
import pytest
from pergamon.client import AsyncClient, DeadlineExceededError, OverloadedError, PergamonError
from pergamon.embedder.v1 import embedder_pb2
from pergamon.reranker.v1 import reranker_pb2
from pergamon.type.v1.item_error_pb2 import ItemError
from pergamon.type.v1.vectors_pb2 import DenseMatrix, SparseMatrix

from services.common.errors import Reason, ServiceError
from services.retriever.client_embedder import ClientEmbedder
from services.retriever.client_reranker import ClientReranker
from services.retriever.ports import RerankFailed
from services.retriever.types import EmbeddingNeed

NEED = EmbeddingNeed(dense_model="e5", sparse_model="bm25", tokenizer_version="1", language="de")
CODE = grpc.StatusCode


class ScriptedClient(AsyncClient):
    """Answers or fails as told, and keeps what it was asked."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer
        self.asked: dict[str, object] = {}

    async def embed(self, texts, **options):  # type: ignore[no-untyped-def, override]
        self.asked = {"texts": texts, **options}
        return self._answered()

    async def rerank(self, query, passages, **options):  # type: ignore[no-untyped-def, override]
        return self._answered()

    def _answered(self):  # type: ignore[no-untyped-def]
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (PergamonError(CODE.UNAVAILABLE, "", "connection refused"), Reason.EMBEDDER_UNAVAILABLE),
        (PergamonError(CODE.UNAVAILABLE, "SHUTTING_DOWN", "draining"), Reason.EMBEDDER_UNAVAILABLE),
        (PergamonError(CODE.UNAVAILABLE, "DEVICE_LOST", "gone"), Reason.EMBEDDER_UNAVAILABLE),
        (PergamonError(CODE.UNAUTHENTICATED, "UNAUTHENTICATED", "no key"), Reason.EMBEDDER_UNAVAILABLE),
        (PergamonError(CODE.INTERNAL, "INTERNAL", "defect"), Reason.EMBEDDER_UNAVAILABLE),
        (OverloadedError(CODE.RESOURCE_EXHAUSTED, "OVERLOADED", "full", retry_after_s=3.0), Reason.OVERLOADED),
        (DeadlineExceededError(CODE.DEADLINE_EXCEEDED, "", "late"), Reason.DEADLINE_EXCEEDED),
        (
            DeadlineExceededError(CODE.DEADLINE_EXCEEDED, "DEADLINE_UNREACHABLE", "busy"),
            Reason.DEADLINE_UNREACHABLE,
        ),
        (PergamonError(CODE.NOT_FOUND, "MODEL_NOT_FOUND", "none"), Reason.MODEL_NOT_FOUND),
        (PergamonError(CODE.FAILED_PRECONDITION, "MODEL_NOT_AVAILABLE", "no weights"), Reason.MODEL_NOT_AVAILABLE),
        (PergamonError(CODE.FAILED_PRECONDITION, "WRONG_MODEL_KIND", "reranker"), Reason.WRONG_MODEL_KIND),
        (PergamonError(CODE.INTERNAL, "INFERENCE_FAILED", "nan"), Reason.INFERENCE_FAILED),
    ],
)
async def test_embed_when_the_call_fails_then_the_reason_is_one_a_caller_of_search_can_use(failure, reason: Reason):
    with pytest.raises(ServiceError) as caught:
        await ClientEmbedder(ScriptedClient(failure)).embed("q", NEED, timeout_s=1)
    assert caught.value.error_reason is reason


async def test_embed_when_the_text_has_no_vector_then_an_error():
    report = embedder_pb2.EmbedReport(error=ItemError(reason="INFERENCE_FAILED", message="not finite"))
    reply = embedder_pb2.EmbedResponse(reports=[report])
    with pytest.raises(ServiceError, match="not finite"):
        await ClientEmbedder(ScriptedClient(reply)).embed("q", NEED, timeout_s=1)


@pytest.mark.parametrize(
    "reply",
    [
        embedder_pb2.EmbedResponse(dense=DenseMatrix(data=b"\0" * 8, rows=1, dimensions=3)),
        embedder_pb2.EmbedResponse(dense=DenseMatrix(data=b"", rows=0, dimensions=0)),
        embedder_pb2.EmbedResponse(
            dense=DenseMatrix(data=b"\0" * 4, rows=1, dimensions=1), sparse=SparseMatrix(indices=b"\0" * 4)
        ),
    ],
)
async def test_embed_when_the_answer_does_not_fit_then_an_error_and_no_search_with_it(reply):
    with pytest.raises(ServiceError):
        await ClientEmbedder(ScriptedClient(reply)).embed("q", NEED, timeout_s=1)


async def test_embed_when_asked_then_one_call_for_both_vectors_that_never_fails_for_length():
    reply = embedder_pb2.EmbedResponse(
        dense=DenseMatrix(data=b"\0\0\x80\x3f", rows=1, dimensions=1),
        sparse=SparseMatrix(offsets=[0, 1], indices=b"\x07\0\0\0", values=b"\0\0\x80\x3f"),
        reports=[embedder_pb2.EmbedReport(truncated=True)],
    )
    client = ScriptedClient(reply)
    vectors = await ClientEmbedder(client).embed("q", NEED, timeout_s=1)
    assert vectors.dense is not None and vectors.sparse is not None
    assert (vectors.dense.tolist(), vectors.sparse.indices.tolist(), vectors.truncated) == ([1.0], [7], True)
    assert client.asked["truncation"] == embedder_pb2.TRUNCATION_RIGHT
    assert client.asked["input_type"] == embedder_pb2.INPUT_TYPE_QUERY
    assert client.asked["language"] == "de"


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (PergamonError(CODE.UNAVAILABLE, "", "refused"), "the reranker cannot be reached"),
        (OverloadedError(CODE.RESOURCE_EXHAUSTED, "OVERLOADED", "full"), "OVERLOADED"),
        (DeadlineExceededError(CODE.DEADLINE_EXCEEDED, "", "late"), "DEADLINE_EXCEEDED"),
        (PergamonError(CODE.NOT_FOUND, "MODEL_NOT_FOUND", "none"), "MODEL_NOT_FOUND"),
    ],
)
async def test_rerank_when_the_call_fails_then_a_short_reason(failure, reason: str):
    with pytest.raises(RerankFailed) as caught:
        await ClientReranker(ScriptedClient(failure)).rerank("q", ["t"], model="", timeout_s=1)
    assert caught.value.reason == reason


async def test_rerank_when_a_passage_has_no_score_then_none_stands_in_its_place():
    reply = reranker_pb2.RerankResponse(scores=[reranker_pb2.RerankScore(index=1, logit=2.0, probability=0.88)])
    scores = await ClientReranker(ScriptedClient(reply)).rerank("q", ["a", "b"], model="", timeout_s=1)
    assert scores[0] is None
    assert scores[1] is not None and scores[1].logit == 2.0


async def test_rerank_when_the_answer_names_a_passage_that_is_not_there_then_it_is_not_used():
    reply = reranker_pb2.RerankResponse(scores=[reranker_pb2.RerankScore(index=9)])
    with pytest.raises(RerankFailed):
        await ClientReranker(ScriptedClient(reply)).rerank("q", ["a"], model="", timeout_s=1)
