"""A file that is written chunk by chunk off the event loop, hashed on the way, and gone unless it is kept."""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from services.catalog.blobs import Content, as_stream, not_found, unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    path: Path
    size_bytes: int
    sha256: str


@asynccontextmanager
async def spooled(folder: Path, content: Content) -> AsyncGenerator[Spooled]:
    """`content` in a synced temporary file in `folder`; the file is deleted at the end if it is still there."""
    with disk_errors():
        descriptor, name = await asyncio.to_thread(tempfile.mkstemp, prefix="put-", dir=folder)
    path = Path(name)
    try:
        digest = hashlib.sha256()
        size_bytes = 0

        def write(chunk: bytes) -> None:
            digest.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(descriptor, view) :]

        try:
            async for chunk in as_stream(content):
                size_bytes += len(chunk)
                with disk_errors():
                    await asyncio.to_thread(write, chunk)
            with disk_errors():
                await asyncio.to_thread(os.fsync, descriptor)
        finally:
            os.close(descriptor)
        yield Spooled(path=path, size_bytes=size_bytes, sha256=digest.hexdigest())
    finally:
        with suppress(FileNotFoundError):
            await asyncio.to_thread(path.unlink)


@contextmanager
def disk_errors(key: str | None = None) -> Generator[None]:
    """Say what the disk says in our words: BlobNotFound where `key` was asked for, else BLOB_STORE_UNAVAILABLE."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        if key is not None:
            raise not_found(key) from error
        raise unavailable("lost a folder while it was in use") from error
    except OSError as error:
        raise unavailable(f"cannot read or write: {os.strerror(error.errno or 0)}") from error
