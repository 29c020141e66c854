"""The blocking client: the methods of AsyncClient, for programs without an event loop and for threads."""

from collections.abc import Generator, Iterable
from types import TracebackType
from typing import Self

from pergamon.client._background import BackgroundLoop, Facade, blocking, drawn, iterate, iterating
from pergamon.client._channel import Targets, TlsConfig
from pergamon.client._retry import RetryPolicy, Timing
from pergamon.client.async_client import DEFAULT_TARGET, AsyncClient
from pergamon.embedder.v1.embedder_pb2 import EmbedStreamRequest, EmbedStreamResponse
from pergamon.reranker.v1.reranker_pb2 import RerankStreamRequest, RerankStreamResponse


class Client(Facade):
    """Calls Pergamon's services and waits. Arguments, methods and errors are those of AsyncClient.

    May be used by many threads at once, also by those that run an event loop (which stands still meanwhile). The work
    is done in one background thread; `progress` callbacks run there and must not call the client. Streams are plain
    iterators.

    >>> with Client("127.0.0.1:7700", timeout_s=10) as client:
    ...     for document in client.list_documents("kb_1"):
    ...         print(document.name)
    policy.pdf
    faq.md
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        targets: Targets | None = None,
        api_key: str | None = None,
        tls: TlsConfig | None = None,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._inner: AsyncClient = AsyncClient(
            target, targets=targets, api_key=api_key, tls=tls, timeout_s=timeout_s, retry=retry, timing=timing
        )
        self._background = BackgroundLoop("pergamon-client")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End calls in progress, close the connections, stop the thread. Closing twice is fine."""
        self._background.close(self._inner.aclose())

    def embed_stream(
        self, requests: Iterable[EmbedStreamRequest], *, timeout_s: float | None = None
    ) -> Generator[EmbedStreamResponse, None, None]:
        """As AsyncClient.embed_stream; `requests` is drawn in a worker thread, only as fast as replies are read."""
        return iterate(self._background, self._inner.embed_stream(drawn(requests), timeout_s=timeout_s))

    def rerank_stream(
        self, requests: Iterable[RerankStreamRequest], *, timeout_s: float | None = None
    ) -> Generator[RerankStreamResponse, None, None]:
        """As AsyncClient.rerank_stream; `requests` is drawn in a worker thread, only as fast as replies are read."""
        return iterate(self._background, self._inner.rerank_stream(drawn(requests), timeout_s=timeout_s))

    embed = blocking(AsyncClient.embed)
    tokenize = blocking(AsyncClient.tokenize)
    get_tokenizer = blocking(AsyncClient.get_tokenizer)
    list_embedding_models = blocking(AsyncClient.list_embedding_models)
    get_embedding_model = blocking(AsyncClient.get_embedding_model)
    load_embedding_model = blocking(AsyncClient.load_embedding_model)
    unload_embedding_model = blocking(AsyncClient.unload_embedding_model)

    rerank = blocking(AsyncClient.rerank)
    list_rerank_models = blocking(AsyncClient.list_rerank_models)
    get_rerank_model = blocking(AsyncClient.get_rerank_model)
    load_rerank_model = blocking(AsyncClient.load_rerank_model)
    unload_rerank_model = blocking(AsyncClient.unload_rerank_model)

    create_knowledge_base = blocking(AsyncClient.create_knowledge_base)
    get_knowledge_base = blocking(AsyncClient.get_knowledge_base)
    list_knowledge_bases = iterating(AsyncClient.list_knowledge_bases)
    update_knowledge_base = blocking(AsyncClient.update_knowledge_base)
    delete_knowledge_base = blocking(AsyncClient.delete_knowledge_base)

    upload_document = blocking(AsyncClient.upload_document)
    get_document = blocking(AsyncClient.get_document)
    list_documents = iterating(AsyncClient.list_documents)
    update_document = blocking(AsyncClient.update_document)
    delete_document = blocking(AsyncClient.delete_document)
    list_blocks = iterating(AsyncClient.list_blocks)
    get_page_routes = blocking(AsyncClient.get_page_routes)

    get_job = blocking(AsyncClient.get_job)
    list_jobs = iterating(AsyncClient.list_jobs)
    watch_job = iterating(AsyncClient.watch_job)
    wait_for_job = blocking(AsyncClient.wait_for_job)
    cancel_job = blocking(AsyncClient.cancel_job)

    search = blocking(AsyncClient.search)
    retrieve = blocking(AsyncClient.retrieve)
