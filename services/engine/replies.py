"""Replies of queries, written as bytes: building 300 small messages takes longer than finding the points."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import qdrant_edge as edge

from services.engine.points import from_scored

# Tags of the wire format (number << 3 | type) of qdrant's ScoredPoint, PointId, BatchResult and QueryBatchResponse.
_LIST_ENTRY = b"\x0a"  # BatchResult.result, QueryBatchResponse.result, QueryResponse.result: 1, length-delimited
_UUID_ID = b"\x0a\x26\x12\x24"  # ScoredPoint.id: 1, 38 bytes; in it PointId.uuid: 2, 36 bytes
_SCORE_AND_VERSION = struct.Struct("<cfc")  # 3, 32-bit; then the tag of 5, varint
_SCORE, _VERSION = b"\x1d", b"\x28"
_TIME = struct.Struct("<cd")  # QueryBatchResponse.time, QueryResponse.time: 2, 64-bit
_TIME_TAG = b"\x11"


def query_reply(hits: Iterable[edge.ScoredPoint], seconds: float, *, bare: bool) -> bytes:
    """A serialised QueryResponse. `bare`: the hits have neither payloads nor vectors."""
    return _points(hits, bare=bare) + _TIME.pack(_TIME_TAG, seconds)


def query_batch_reply(lists: Sequence[Iterable[edge.ScoredPoint]], seconds: float, *, bare: Sequence[bool]) -> bytes:
    """A serialised QueryBatchResponse; `bare` says of each list what it does for `query_reply`."""
    out: list[bytes] = []
    for hits, is_bare in zip(lists, bare, strict=True):
        body = _points(hits, bare=is_bare)
        out += (_LIST_ENTRY, _varint(len(body)), body)
    out.append(_TIME.pack(_TIME_TAG, seconds))
    return b"".join(out)


def _points(hits: Iterable[edge.ScoredPoint], *, bare: bool) -> bytes:
    write = _bare_point if bare else _point
    return b"".join([write(hit) for hit in hits])


def _bare_point(hit: edge.ScoredPoint) -> bytes:
    key = hit.id
    if isinstance(key, int):
        return _point(hit)
    version = _varint(hit.version)
    body = _UUID_ID + str(key).encode() + _SCORE_AND_VERSION.pack(_SCORE, hit.score, _VERSION) + version
    return b"%b%c%b" % (_LIST_ENTRY, len(body), body)  # shorter than 128 bytes: its length is one byte


def _point(hit: edge.ScoredPoint) -> bytes:
    body: bytes = from_scored(hit).SerializeToString()
    return _LIST_ENTRY + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    if number < 128:
        return bytes((number,))
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
