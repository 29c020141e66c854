"""Identifiers: opaque strings with a kind prefix, and the integers that order versions.

Every id that crosses the wire is a string made by `new_id`; `is_id` is the one check for all of
them. Version numbers are integers handed out by the catalogue and unique over all knowledge bases,
so that a point in a shared collection is attributable by that number alone.
"""

import re
import secrets
import time
from typing import Literal, NewType

TenantId = NewType("TenantId", str)
KnowledgeBaseId = NewType("KnowledgeBaseId", str)
DocumentId = NewType("DocumentId", str)
JobId = NewType("JobId", str)
IndexVersionId = NewType("IndexVersionId", int)
DocVersionId = NewType("DocVersionId", int)

IdKind = Literal["kb", "doc", "job"]

DEFAULT_TENANT = TenantId("default")

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_ID = re.compile(r"(kb|doc|job)_[0-9a-hjkmnp-tv-z]{26}")
_RANDOM_BITS = 80


def new_id(kind: IdKind) -> str:
    """A fresh id of `kind`: 48 bits of time in milliseconds, then 80 random bits (a ULID in lower case).

    Ids of one kind therefore sort by creation time, which keeps listings and B-tree inserts in order.
    """
    value = (int(time.time() * 1000) << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
    digits: list[str] = []
    for _ in range(26):
        value, digit = divmod(value, 32)
        digits.append(_CROCKFORD[digit])
    return f"{kind}_{''.join(reversed(digits))}"


def is_id(text: str, kind: IdKind) -> bool:
    """Whether `text` is a well-formed id of `kind`. Says nothing about whether the thing exists."""
    return _ID.fullmatch(text) is not None and text.startswith(f"{kind}_")
