"""What the methods of every service share."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

from pergamon.client._calls import Calls
from pergamon.client._channel import Channels

Entry = TypeVar("Entry")


class ServiceMethods:
    """Base of the groups of methods that AsyncClient is made of."""

    _calls: Calls
    _channels: Channels


async def all_pages(fetch: Callable[[str], Awaitable[tuple[Sequence[Entry], str]]]) -> AsyncGenerator[Entry, None]:
    """The entries of all pages; `fetch` takes a page token and returns the entries and the next token.

    A page is fetched when its first entry is asked for. Raises RuntimeError when the server sends the same token twice
    in a row, which would never end.
    """
    token = ""
    while True:
        entries, next_token = await fetch(token)
        for entry in entries:
            yield entry
        if not next_token:
            return
        if next_token == token:
            raise RuntimeError("the server repeats a page token; the list would never end")
        token = next_token
