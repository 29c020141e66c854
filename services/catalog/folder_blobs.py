"""Blobs in a folder: written beside, synced, renamed into place."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from uuid import uuid4

from services.catalog.blobs import (
    CHUNK_BYTES,
    BlobInfo,
    Content,
    check_key,
    check_sha256,
    not_found,
)
from services.catalog.spool import disk_errors, spooled

#: Keys cannot begin a segment with a dot, so nothing in here is ever a blob.
_WORKSHOP = ".incomplete"
_LEFTOVER_AGE_S = 86_400.0
_LIST_BATCH = 500
_TRIES = 5


class FolderBlobStore:
    """A `BlobStore` below `root`, which is created where it is missing. Several processes may share it."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._workshop = self._root / _WORKSHOP

    async def open(self) -> None:
        """Make the folder, and remove what uploads that were killed have left in it."""
        with disk_errors():
            await asyncio.to_thread(self._prepare)

    def _prepare(self) -> None:
        self._workshop.mkdir(parents=True, exist_ok=True)
        limit = time.time() - _LEFTOVER_AGE_S
        for leftover in self._workshop.iterdir():
            with suppress(FileNotFoundError):
                if leftover.stat().st_mtime < limit:
                    shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()

    async def put(self, key: str, content: Content, *, sha256: str = "") -> BlobInfo:
        target = self._path(key)
        async with spooled(self._workshop, content) as spool:
            check_sha256(found=spool.sha256, wanted=sha256)
            with disk_errors():
                await asyncio.to_thread(self._place, spool.path, target)
            return BlobInfo(key=key, size_bytes=spool.size_bytes, sha256=spool.sha256)

    def _place(self, source: Path, target: Path) -> None:
        for attempt in range(1, _TRIES + 1):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                source.replace(target)
                break
            except FileNotFoundError:
                # A deletion next door took the folder, empty until now, away again.
                if attempt == _TRIES:
                    raise
        for folder in target.parents:
            # Gone again: the blob was deleted in the meantime, and there is nothing to make durable.
            with suppress(FileNotFoundError):
                _sync(folder)
            if folder == self._root:
                break

    async def chunks(self, key: str) -> AsyncIterator[bytes]:
        path = self._path(key)
        with disk_errors(key):
            file = await asyncio.to_thread(path.open, "rb")
        try:
            while True:
                with disk_errors():
                    chunk = await asyncio.to_thread(file.read, CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk
        finally:
            file.close()

    @asynccontextmanager
    async def local_path(self, key: str) -> AsyncGenerator[Path]:
        path = self._path(key)
        if not await asyncio.to_thread(path.is_file):
            raise not_found(key)
        yield path

    async def delete_prefix(self, prefix: str) -> None:
        with disk_errors():
            await asyncio.to_thread(self._delete, self._path(prefix))

    def _delete(self, target: Path) -> None:
        trash = self._workshop / f"delete-{uuid4().hex}"
        try:
            target.rename(trash)
        except (FileNotFoundError, NotADirectoryError):
            return
        if trash.is_dir():
            shutil.rmtree(trash)
        else:
            trash.unlink()
        for folder in target.parents:
            if folder == self._root:
                return
            try:
                folder.rmdir()
            except OSError:
                return

    async def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        start = self._path(prefix) if prefix else self._root
        found = self._walk(start)
        while batch := await asyncio.to_thread(lambda: list(islice(found, _LIST_BATCH))):
            for info in batch:
                yield info

    def _walk(self, start: Path) -> Iterator[BlobInfo]:
        files = iter([start]) if start.is_file() else self._files(start)
        for path in files:
            with suppress(FileNotFoundError):
                yield BlobInfo(key=path.relative_to(self._root).as_posix(), size_bytes=path.stat().st_size)

    def _files(self, start: Path) -> Iterator[Path]:
        for folder, folders, names in os.walk(start):
            if Path(folder) == self._root:
                folders[:] = [name for name in folders if name != _WORKSHOP]
            yield from (Path(folder) / name for name in names)

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
