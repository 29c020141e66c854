"""The reranker as the retriever sees it, over the client that everyone else uses too."""

from collections.abc import Sequence

from pergamon.client import AsyncClient, DeadlineExceededError, PergamonError
from pergamon.reranker.v1 import reranker_pb2 as pb

from services.domain.scores import RelevanceLabel, RerankScore
from services.retriever.ports import RerankerCard, RerankFailed

_LABELS = {
    pb.RELEVANCE_LABEL_HIGH: RelevanceLabel.HIGH,
    pb.RELEVANCE_LABEL_MEDIUM: RelevanceLabel.MEDIUM,
    pb.RELEVANCE_LABEL_LOW: RelevanceLabel.LOW,
}


class ClientReranker:
    """`retriever.ports.Reranker`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def card(self, model: str, *, timeout_s: float) -> RerankerCard:
        try:
            if model:
                found = await self._client.get_rerank_model(model, timeout_s=timeout_s)
            else:
                models = await self._client.list_rerank_models(timeout_s=timeout_s)
                if not models:
                    raise RerankFailed("MODEL_NOT_FOUND")
                found = models[0]
        except PergamonError as error:
            raise _failed(error) from error
        return RerankerCard(name=found.name, languages=tuple(found.languages))

    async def rerank(
        self, query: str, texts: Sequence[str], *, model: str, timeout_s: float
    ) -> list[RerankScore | None]:
        try:
            reply = await self._client.rerank(query, texts, model=model, timeout_s=timeout_s)
        except PergamonError as error:
            raise _failed(error) from error
        scores: list[RerankScore | None] = [None] * len(texts)
        for score in reply.scores:
            if score.index >= len(texts):
                raise RerankFailed("the reranker answered for a passage it was not given")
            scores[score.index] = RerankScore(
                logit=score.logit,
                probability=score.probability,
                label=_LABELS.get(score.label, RelevanceLabel.LOW),
            )
        return scores


def _failed(error: PergamonError) -> RerankFailed:
    if error.reason:
        return RerankFailed(error.reason)
    return RerankFailed(
        "DEADLINE_EXCEEDED" if isinstance(error, DeadlineExceededError) else "the reranker cannot be reached"
    )
