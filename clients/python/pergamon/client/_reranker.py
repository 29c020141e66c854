"""The methods of the reranker."""

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import aclosing
from functools import cached_property

from pergamon.client._calls import STREAM_TIMEOUT_S
from pergamon.client._core import ServiceMethods
from pergamon.client._streams import exchange
from pergamon.embedder.v1 import embedder_pb2
from pergamon.reranker.v1 import reranker_pb2 as pb
from pergamon.reranker.v1.reranker_pb2_grpc import RerankerServiceStub
from pergamon.type.v1.model_pb2 import Model

#: The reranker's own, or the embedder's (`pergamon.client.Priority`), which has the same values.
AnyPriority = pb.Priority.ValueType | embedder_pb2.Priority.ValueType

#: Loading may fetch the model, and unloading waits for calls in work.
_CHANGE_TIMEOUT_S = 600.0


def rerank_request(
    query: str,
    passages: Sequence[str],
    *,
    model: str = "",
    top_n: int = 0,
    return_text: bool = False,
    priority: AnyPriority = pb.PRIORITY_INTERACTIVE,
    long_passages: pb.LongTextPolicy.ValueType = pb.LONG_TEXT_POLICY_CUT,
    long_query: pb.LongTextPolicy.ValueType = pb.LONG_TEXT_POLICY_CUT,
    language: str = "",
    require_language: bool = False,
) -> pb.RerankRequest:
    """A query and its passages, for `rerank_stream`; the arguments are those of `rerank`."""
    if isinstance(passages, str):
        raise TypeError("passages is one string; pass a list of strings")
    return pb.RerankRequest(
        model=model,
        query=query,
        passages=passages,
        top_n=top_n,
        return_text=return_text,
        priority=pb.Priority.ValueType(priority),
        long_passages=long_passages,
        long_query=long_query,
        language=language,
        require_language=require_language,
    )


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
        priority: AnyPriority = pb.PRIORITY_INTERACTIVE,
        long_passages: pb.LongTextPolicy.ValueType = pb.LONG_TEXT_POLICY_CUT,
        long_query: pb.LongTextPolicy.ValueType = pb.LONG_TEXT_POLICY_CUT,
        language: str = "",
        require_language: bool = False,
        timeout_s: float | None = None,
    ) -> pb.RerankResponse:
        """Score 1 to 1,000 passages, best first; `scores[i].index` is the position in `passages`.

        `top_n` 0 returns all of them. Passages without a score are in `failures`. What is too long is cut at its end,
        and the reply says so (`scores[i].truncated`, `query_truncated`); LONG_TEXT_POLICY_FAIL refuses it instead: a
        passage by its failure, a query by InvalidRequestError. `language` (ISO 639-1) is that of the query: the reply
        says whether the model is not made for it; with `require_language` that is a FailedPreconditionError.

        >>> response = await client.rerank("who wrote it?", ["Jane wrote it.", "It rains."], language="en")
        >>> all(score.logit <= response.scores[0].logit for score in response.scores)
        True
        """
        request = rerank_request(
            query,
            passages,
            model=model,
            top_n=top_n,
            return_text=return_text,
            priority=priority,
            long_passages=long_passages,
            long_query=long_query,
            language=language,
            require_language=require_language,
        )
        return await self._calls.unary(self._reranker.Rerank, request, timeout_s=timeout_s)

    async def rerank_stream(
        self, requests: AsyncIterable[pb.RerankStreamRequest], *, timeout_s: float | None = None
    ) -> AsyncGenerator[pb.RerankStreamResponse, None]:
        """Rerank request after request; replies come in their order, each with a response or an error.

        Requests are taken from `requests` only as fast as replies are read. `timeout_s` is for the whole stream; unset:
        an hour. A stream that breaks is not repeated: go on after the last id that was answered. An exception of
        `requests` is raised here.
        """
        call = self._calls.begin("reranker", timeout_s, STREAM_TIMEOUT_S)
        stream = self._reranker.RerankStream(timeout=call.left_s(), metadata=call.metadata)
        replies = exchange(stream, requests, reply_type=pb.RerankStreamResponse, request_id=call.request_id)
        async with aclosing(replies):
            async for reply in replies:
                yield reply

    async def list_rerank_models(self, *, timeout_s: float | None = None) -> list[Model]:
        """The models the reranker serves, the default first."""
        response = await self._calls.unary(self._reranker.ListModels, pb.ListModelsRequest(), timeout_s=timeout_s)
        return list(response.models)

    async def get_rerank_model(self, model: str, *, timeout_s: float | None = None) -> Model:
        """Describe one model of the reranker, by name or alias."""
        request = pb.GetModelRequest(model=model)
        return (await self._calls.unary(self._reranker.GetModel, request, timeout_s=timeout_s)).model

    async def load_rerank_model(self, model: str, *, timeout_s: float = _CHANGE_TIMEOUT_S) -> Model:
        """Have the reranker load a model and keep it; returns when it is ready. Needs the role admin.

        The server goes on when this call is given up: call again to wait for the same load.
        """
        request = pb.LoadModelRequest(model=model)
        return (await self._calls.unary(self._reranker.LoadModel, request, timeout_s=timeout_s)).model

    async def unload_rerank_model(self, model: str, *, timeout_s: float = _CHANGE_TIMEOUT_S) -> Model:
        """Have the reranker finish the calls that use a model and give its memory back. Needs the role admin."""
        request = pb.UnloadModelRequest(model=model)
        return (await self._calls.unary(self._reranker.UnloadModel, request, timeout_s=timeout_s)).model
