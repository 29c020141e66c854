"""Whose turn the work of a task takes, handed on from service to service.

A service that calls another does so with its own credential. So that the callers behind it still take turns, it says
on whose behalf it calls; that is believed of other services, and where there are no credentials at all.
"""

from contextvars import ContextVar

#: Metadata of a call between services.
ON_BEHALF_OF = "x-on-behalf-of"
_MOST_CHARS = 200

_turn: ContextVar[str] = ContextVar("turn", default="")


def take_turn(client: str) -> None:
    """From now on this task, and what it starts, works for `client`."""
    _turn.set(client)


def turn() -> str:
    """As metadata can carry it; empty: on nobody's behalf."""
    client = _turn.get()[:_MOST_CHARS]
    return client if client.isascii() and client.isprintable() else ""
