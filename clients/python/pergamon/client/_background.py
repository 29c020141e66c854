"""An event loop in a thread of its own, and the bridges that turn asynchronous methods into blocking ones."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterable
from concurrent.futures import CancelledError
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")
Entry = TypeVar("Entry")
Async = TypeVar("Async")


class BackgroundLoop:
    """Runs coroutines for other threads. Closing ends the work in progress, which raises in its callers."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for `work`; an interrupt of the waiting thread cancels it. Raises RuntimeError when closed."""
        with self._lock:
            if self._closed or threading.current_thread() is self._thread:
                work.close()
                raise RuntimeError("the client is closed" if self._closed else "a callback must not call the client")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the client was closed during the call") from None
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run `last`, end what still runs, and stop the thread. Closing again does nothing."""
        with self._lock:
            if self._closed:
                last.close()
                return
            self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(self._wind_up(last), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _wind_up(self, last: Coroutine[Any, Any, None]) -> None:
        await last
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class Facade:
    """What a class with blocking methods holds: the loop, and the object whose methods run in it."""

    _background: BackgroundLoop
    _inner: Any


def blocking(
    method: Callable[Concatenate[Async, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Facade, P], Result]:
    """The blocking form of a coroutine method, with its signature."""

    @wraps(method)
    def call(self: Facade, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._background.run(method(self._inner, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


def iterating(
    method: Callable[Concatenate[Async, P], AsyncGenerator[Entry, None]],
) -> Callable[Concatenate[Facade, P], Generator[Entry, None, None]]:
    """The blocking form of a method that returns an asynchronous generator, with its signature."""

    @wraps(method)
    def call(self: Facade, /, *args: P.args, **kwargs: P.kwargs) -> Generator[Entry, None, None]:
        return iterate(self._background, method(self._inner, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


def iterate(background: BackgroundLoop, entries: AsyncGenerator[Entry, None]) -> Generator[Entry, None, None]:
    """Entry after entry of `entries`, each made when it is asked for; leaving early ends `entries`."""
    nothing = object()

    async def following() -> Entry | object:
        return await anext(entries, nothing)

    async def end() -> None:
        await entries.aclose()

    try:
        while (entry := background.run(following())) is not nothing:
            yield entry  # pyright: ignore[reportReturnType]  not the sentinel
    finally:
        with contextlib.suppress(RuntimeError):  # closed in the meantime, which ended `entries` too
            background.run(end())


async def drawn(entries: Iterable[Entry]) -> AsyncIterator[Entry]:
    """The entries of a blocking iterable, each drawn in a worker thread when it is asked for."""
    iterator, nothing = iter(entries), object()
    while (entry := await asyncio.to_thread(next, iterator, nothing)) is not nothing:
        yield entry  # pyright: ignore[reportReturnType]  not the sentinel
