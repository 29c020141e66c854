"""The client for asyncio: all services behind one object."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from pergamon.client._calls import Calls
from pergamon.client._channel import Channels, Targets, TlsConfig
from pergamon.client._embedder import EmbedderMethods
from pergamon.client._jobs import JobMethods
from pergamon.client._knowledge_bases import KnowledgeBaseMethods
from pergamon.client._reranker import RerankerMethods
from pergamon.client._retriever import RetrieverMethods
from pergamon.client._retry import RetryPolicy, Timing
from pergamon.client._uploads import UploadMethods

DEFAULT_TARGET = "127.0.0.1:7700"


class AsyncClient(EmbedderMethods, RerankerMethods, KnowledgeBaseMethods, UploadMethods, JobMethods, RetrieverMethods):
    """Calls Pergamon's services. Use it in one event loop, as a context manager or with `aclose`.

    `target` serves all services, but for those that `targets` names. `timeout_s` is the default budget of a call, all
    its attempts together; streams and uploads have an hour. Every failed call raises a PergamonError. Cancelling the
    task cancels the call on the server. `timing` replaces clock, sleep and chance in tests.

    Clients take turns at the devices. One that calls for others says with `on_behalf_of`, asked with each call, for
    whom; that is believed of other services, and where there are no credentials.

    >>> async with AsyncClient("127.0.0.1:7700", api_key="secret", timeout_s=10) as client:
    ...     models = await client.list_embedding_models()
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
        on_behalf_of: Callable[[], str] | None = None,
    ) -> None:
        self._channels = Channels(target, targets, tls)
        self._calls = Calls(
            timeout_s=timeout_s,
            api_key=api_key,
            retry=retry or RetryPolicy(),
            timing=timing or Timing(),
            on_behalf_of=on_behalf_of,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; calls in progress end with CANCELLED. Closing twice is fine."""
        self._calls.close()
        await self._channels.aclose()
