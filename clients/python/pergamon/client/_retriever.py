"""The methods of the retriever."""

from collections.abc import Sequence
from functools import cached_property
from typing import TypedDict, Unpack

from pergamon.client._core import ServiceMethods
from pergamon.retriever.v1 import retriever_pb2 as pb
from pergamon.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub
from pergamon.type.v1.filter_pb2 import Filter


class SearchOptions(TypedDict, total=False):
    """What `search` and `retrieve` take beside the query; what is left out is as the knowledge base says."""

    #: How candidates are found.
    mode: pb.SearchMode.ValueType
    #: Results wanted, 1 to 100.
    top_k: int | None
    #: Only documents that this filter lets through; see `pergamon.client.filters`.
    filter: Filter | None
    #: How several knowledge bases are combined.
    combination: pb.Combination.ValueType
    #: Whether to rerank.
    rerank: bool | None
    #: Reranker model; empty: the reranker's default.
    rerank_model: str
    #: Smallest rerank probability of a result, 0 to 1.
    similarity_threshold: float | None
    #: Fused candidates that go on, top_k to 200.
    candidates: int | None
    #: Weight of the dense list in fusion.
    dense_weight: float | None
    #: Weight of the BM25 list in fusion.
    bm25_weight: float | None
    #: Also return candidates that are not among the results, with the reason.
    include_dropped: bool


_RERANK = {None: pb.RERANK_CHOICE_UNSPECIFIED, True: pb.RERANK_CHOICE_ON, False: pb.RERANK_CHOICE_OFF}


def _search_request(query: str, knowledge_base_ids: str | Sequence[str], options: SearchOptions) -> pb.SearchRequest:
    unknown = options.keys() - SearchOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown search options: {', '.join(sorted(unknown))}")
    return pb.SearchRequest(
        query=query,
        knowledge_base_ids=[knowledge_base_ids] if isinstance(knowledge_base_ids, str) else knowledge_base_ids,
        mode=options.get("mode", pb.SEARCH_MODE_UNSPECIFIED),
        top_k=options.get("top_k"),
        filter=options.get("filter"),
        combination=options.get("combination", pb.COMBINATION_UNSPECIFIED),
        rerank=_RERANK[options.get("rerank")],
        rerank_model=options.get("rerank_model", ""),
        similarity_threshold=options.get("similarity_threshold"),
        candidates=options.get("candidates"),
        dense_weight=options.get("dense_weight"),
        bm25_weight=options.get("bm25_weight"),
        include_dropped=options.get("include_dropped", False),
    )


class RetrieverMethods(ServiceMethods):
    """Finds the passages that answer a query."""

    @cached_property
    def _retriever(self):
        return RetrieverServiceStub(self._channels.of("retriever"))

    async def search(
        self,
        query: str,
        knowledge_base_ids: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        **options: Unpack[SearchOptions],
    ) -> pb.SearchResponse:
        """Ranked passages of 1 to 32 knowledge bases; the options are those of `SearchOptions`.

        >>> recent = filters.between("updated_time", gte=datetime(2026, 1, 1, tzinfo=UTC))
        >>> response = await client.search("who pays for travel?", "kb_1", top_k=3, filter=recent, rerank=True)
        >>> len(response.passages) <= 3
        True
        """
        request = _search_request(query, knowledge_base_ids, options)
        return await self._calls.unary(self._retriever.Search, request, timeout_s=timeout_s)

    async def retrieve(
        self,
        query: str,
        knowledge_base_ids: str | Sequence[str],
        *,
        format: pb.ContextFormat.ValueType = pb.CONTEXT_FORMAT_UNSPECIFIED,
        budget_tokens: int = 0,
        max_blocks: int = 0,
        timeout_s: float | None = None,
        **options: Unpack[SearchOptions],
    ) -> pb.RetrieveResponse:
        """Ranked passages, and a context made of them that is ready for a prompt.

        `budget_tokens` 0 means 4,000 and `max_blocks` 0 means 12; the other options are those of `SearchOptions`.
        """
        request = pb.RetrieveRequest(
            search=_search_request(query, knowledge_base_ids, options),
            format=format,
            budget_tokens=budget_tokens,
            max_blocks=max_blocks,
        )
        return await self._calls.unary(self._retriever.Retrieve, request, timeout_s=timeout_s)
