"""Blobs: the bytes of uploads and what is made of them, under keys like `tenant/kb/doc/version/original`."""

import re
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from services.common.errors import Reason, ServiceError, Unavailable

KEY_MAX_CHARS = 600
CHUNK_BYTES = 1024 * 1024
_SEGMENT = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,199}")

Content: TypeAlias = bytes | AsyncIterable[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    key: str
    size_bytes: int
    sha256: str = ""
    """Known after `put`, empty in lists."""


class BlobNotFound(ServiceError):
    """The catalogue names a blob that is not there: a defect, or it was cleaned up meanwhile."""

    reason = Reason.INTERNAL


class BlobStore(Protocol):
    """Where blobs are. Errors of every method: BLOB_STORE_UNAVAILABLE; ValueError for a key that is not one."""

    async def put(self, key: str, content: Content, *, sha256: str = "") -> BlobInfo:
        """Store all of `content` or nothing, durably; an older blob of that key is replaced in one step.

        Errors: CHECKSUM_MISMATCH when `sha256` (hex) is given and is not that of the bytes.
        """
        ...

    def chunks(self, key: str) -> AsyncIterator[bytes]:
        """The bytes, a megabyte or so at a time. Errors: BlobNotFound."""
        ...

    def local_path(self, key: str) -> AbstractAsyncContextManager[Path]:
        """A file with the bytes, to be read and not changed, while the context is open. Errors: BlobNotFound."""
        ...

    async def delete_prefix(self, prefix: str) -> None:
        """Delete the blobs below `prefix` (whole segments), and the one of that key. None there: nothing happens."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        """What lies below `prefix` (whole segments; empty: everything), in any order."""
        ...


async def read_blob(store: BlobStore, key: str, *, max_bytes: int) -> bytes:
    """The whole blob in memory. Errors: BlobNotFound; ValueError when it is larger than `max_bytes`."""
    read = bytearray()
    async for chunk in store.chunks(key):
        read += chunk
        if len(read) > max_bytes:
            raise ValueError(f"blob {key!r} has more than {max_bytes} bytes")
    return bytes(read)


def check_key(key: str) -> str:
    """`key`, if no store could take it for anything but a place below its root. Errors: ValueError."""
    if len(key) > KEY_MAX_CHARS or not all(_SEGMENT.fullmatch(segment) for segment in key.split("/")):
        raise ValueError(
            f"blob key {key[:80]!r} is not valid: segments of letters, digits and . _ = - (no . in front), / between"
        )
    return key


def check_sha256(*, found: str, wanted: str) -> None:
    if wanted and found != wanted:
        raise ServiceError(
            f"the bytes received have sha256 {found}, announced was {wanted[:64]}; send them again",
            reason=Reason.CHECKSUM_MISMATCH,
            metadata={"sha256": found},
        )


def not_found(key: str) -> BlobNotFound:
    return BlobNotFound(f"blob {key!r} does not exist")


def unavailable(what: str) -> Unavailable:
    return Unavailable(f"the blob store {what}", reason=Reason.BLOB_STORE_UNAVAILABLE, retry_after_s=5.0)


async def as_stream(content: Content) -> AsyncIterator[bytes]:
    if isinstance(content, bytes):
        for start in range(0, len(content), CHUNK_BYTES):
            yield content[start : start + CHUNK_BYTES]
        return
    async for chunk in content:
        yield chunk
