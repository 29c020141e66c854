"""The content of an upload: bytes, a path or an open binary file, read in pieces off the event loop."""

import asyncio
import hashlib
import io
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO

PIECE_BYTES = 256 * 1024

Content = str | PathLike[str] | bytes | bytearray | memoryview | BinaryIO


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadSource:
    """Content that is ready to be sent.

    `file` is read from `start`. `size_bytes` and `sha256` are None for a stream that cannot be read twice.
    """

    file: BinaryIO
    name: str
    start: int
    size_bytes: int | None
    sha256: str | None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def repeatable(self) -> bool:
        """Whether the content can be sent a second time."""
        return self.sha256 is not None

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The content from its start, in pieces of at most 256 KiB."""
        position = self.start
        while piece := await asyncio.to_thread(self._read, position):
            yield piece
            position += len(piece)

    def _read(self, position: int) -> bytes:
        # A read that a broken attempt left behind in its thread must not move the file under the next attempt.
        with self.lock:
            if self.repeatable:
                self.file.seek(position)
            return self.file.read(PIECE_BYTES)


@asynccontextmanager
async def open_source(content: Content, name: str | None):
    """Open `content` and, where it can be read twice, take its size and sha256 first.

    A path is closed at the end; a file of the caller stays open. Raises OSError, ValueError when there is no name,
    TypeError for a text file.
    """
    shown = name or _own_name(content)
    if not shown:
        raise ValueError("name is missing; content without a file name needs one")
    file, owned = await asyncio.to_thread(_opened, content)
    try:
        yield await asyncio.to_thread(_measured, file, shown)
    finally:
        if owned:
            await asyncio.to_thread(file.close)


def _own_name(content: Content) -> str:
    if isinstance(content, bytes | bytearray | memoryview):
        return ""
    path = fspath(content) if isinstance(content, str | PathLike) else getattr(content, "name", "")
    return Path(path).name if isinstance(path, str) else ""  # the name of a pipe is a number


def _opened(content: Content) -> tuple[BinaryIO, bool]:
    if isinstance(content, bytes | bytearray | memoryview):
        return io.BytesIO(content), True
    if isinstance(content, str | PathLike):
        return Path(content).open("rb"), True
    if isinstance(content, io.TextIOBase):
        raise TypeError("the file is open as text; open it with mode 'rb'")
    return content, False


def _measured(file: BinaryIO, name: str) -> UploadSource:
    if not file.seekable():
        return UploadSource(file=file, name=name, start=0, size_bytes=None, sha256=None)
    start = file.tell()
    digest, size = hashlib.sha256(), 0
    while piece := file.read(PIECE_BYTES):
        digest.update(piece)
        size += len(piece)
    return UploadSource(file=file, name=name, start=start, size_bytes=size, sha256=digest.hexdigest())
