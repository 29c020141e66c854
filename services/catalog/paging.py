"""Page tokens: where a list was left, bound to the list it was issued for."""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from typing import TypeVar

from services.catalog.types import Page
from services.common.errors import FieldViolation, InvalidRequest, Reason

T = TypeVar("T")

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 1_000
_TOKEN_MAX_CHARS = 512


def page_size_of(asked: int) -> int:
    """0 means the default; more than the maximum means the maximum."""
    if asked < 0:
        raise InvalidRequest.of(FieldViolation(field="page_size", description=f"must be 0 or more, got {asked}"))
    return min(asked or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def list_fingerprint(*parts: object) -> str:
    """Names a list by what it is of and how it is filtered."""
    return fingerprint_of([str(part) for part in parts])[:16]


def fingerprint_of(value: object) -> str:
    """sha256 (hex) of a JSON value, the same for the same content."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def encode_token(fingerprint: str, last: str) -> str:
    return base64.urlsafe_b64encode(f"{fingerprint}:{last}".encode()).decode().rstrip("=")


def decode_token(token: str, fingerprint: str) -> str:
    """The key after which the page starts, empty for the first page. Errors: INVALID_PAGE_TOKEN."""
    if not token:
        return ""
    try:
        padded = token[:_TOKEN_MAX_CHARS] + "=" * (-len(token) % 4)
        issued_for, _, last = base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition(":")
    except (binascii.Error, ValueError) as error:
        raise _invalid() from error
    if issued_for != fingerprint or not last or "\x00" in last:
        raise _invalid()
    return last


def to_page(rows: Sequence[T], size: int, fingerprint: str, last_of: Sequence[str]) -> Page[T]:
    """`rows` holds one more than `size` where there is a next page; `last_of` their keys."""
    more = len(rows) > size
    token = encode_token(fingerprint, last_of[size - 1]) if more else ""
    return Page(entries=tuple(rows[:size]), next_page_token=token)


def _invalid() -> InvalidRequest:
    violation = FieldViolation(
        field="page_token", description="was not issued for this list; take it from the page before, same arguments"
    )
    return InvalidRequest.of(violation, reason=Reason.INVALID_PAGE_TOKEN)
