"""The methods of the reranker."""

from collections.abc import Sequence
from functools import cached_property

from pergamon.client._core import ServiceMethods
from pergamon.reranker.v1 import reranker_pb2 as pb
from pergamon.reranker.v1.reranker_pb2_grpc import RerankerServiceStub
from pergamon.type.v1.model_pb2 import Model


class RerankerMethods(ServiceMethods):
    """Judges how well passages answer a query."""

    @cached_property
    def _reranker(self):
        return RerankerServiceStub(self._channels.of("reranker"))

    async def rerank(
        self,
        query: str,
        passages: Sequence[str],
        *,
        model: str = "",
        top_n: int = 0,
        return_text: bool = False,
        timeout_s: float | None = None,
    ) -> pb.RerankResponse:
        """Score 1 to 1,000 passages, best first; `scores[i].index` is the position in `passages`.

        `top_n` 0 returns all of them. Passages without a score are in `failures`.
        """
        if isinstance(passages, str):
            raise TypeError("passages is one string; pass a list of strings")
        request = pb.RerankRequest(model=model, query=query, passages=passages, top_n=top_n, return_text=return_text)
        return await self._calls.unary(self._reranker.Rerank, request, timeout_s=timeout_s)

    async def list_rerank_models(self, *, timeout_s: float | None = None) -> list[Model]:
        """The models the reranker serves, the default first."""
        response = await self._calls.unary(self._reranker.ListModels, pb.ListModelsRequest(), timeout_s=timeout_s)
        return list(response.models)

    async def get_rerank_model(self, model: str, *, timeout_s: float | None = None) -> Model:
        """Describe one model of the reranker, by name or alias."""
        request = pb.GetModelRequest(model=model)
        return (await self._calls.unary(self._reranker.GetModel, request, timeout_s=timeout_s)).model
