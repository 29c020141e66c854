"""Replies written as bytes are what qdrant-client reads."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from qdrant_client import grpc as q

from services.engine.points import from_scored
from services.engine.replies import query_batch_reply, query_reply


@dataclass(frozen=True, kw_only=True)
class Hit:
    """As the engine's own, which cannot be made."""

    id: UUID | int
    score: float
    version: int
    payload: dict[str, Any] | None = None
    vector: dict[str, list[float]] | None = None


floats = st.floats(width=32, allow_nan=False)
hits = st.builds(
    Hit,
    id=st.one_of(st.uuids(), st.integers(0, 2**64 - 1)),
    score=floats,
    version=st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1)),
)
full_hits = st.builds(
    Hit,
    id=st.uuids(),
    score=floats,
    version=st.integers(0, 2**40),
    payload=st.dictionaries(st.text(max_size=5), st.one_of(st.text(), st.integers(-(2**63), 2**63 - 1))),
    vector=st.none() | st.just({"dense": [1.0, 2.0]}),
)


def expected(found: list[Hit]) -> list[q.ScoredPoint]:
    return [from_scored(hit) for hit in found]  # type: ignore[arg-type]


@given(found=st.lists(hits, max_size=20), seconds=st.floats(0, 1e6))
def test_query_reply_when_hits_are_bare_then_every_field_is_read_back(found: list[Hit], seconds: float) -> None:
    reply = q.QueryResponse.FromString(query_reply(found, seconds, bare=True))  # type: ignore[arg-type]
    assert list(reply.result) == expected(found)
    assert reply.time == seconds


@given(bare=st.lists(hits, max_size=200), full=st.lists(full_hits, max_size=5))
def test_query_batch_reply_when_lists_are_bare_and_full_then_both_are_read_back(
    bare: list[Hit], full: list[Hit]
) -> None:
    lists: Any = [bare, full, []]
    reply = q.QueryBatchResponse.FromString(query_batch_reply(lists, 0.5, bare=[True, False, True]))
    assert [list(batch.result) for batch in reply.result] == [expected(bare), expected(full), []]
    assert reply.time == np.float64(0.5)
