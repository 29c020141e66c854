"""The data folder: one shard per collection, opened by this process alone and recovered at start."""

import contextlib
import fcntl
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import grpc
import qdrant_edge as edge

from services.engine.errors import EngineError, collection_missing, invalid
from services.engine.schema import CollectionConfig

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")
_CONFIG_FILE = "collection.json"
_SHARD_FOLDER = "shard"
_LOCK_FILE = "engine.lock"


class FolderInUse(Exception):
    """Another engine process has the data folder open."""


@dataclass(slots=True, kw_only=True)
class Collection:
    """An open collection.

    `dirty`: updates were applied since the last `flush`. `unsynced`: since the last `sync_log`.
    """

    name: str
    config: CollectionConfig
    shard: edge.EdgeShard
    folder: Path
    dirty: bool = field(default=False)
    unsynced: bool = field(default=False)

    def apply(self, operation: edge.UpdateOperation) -> None:
        """Apply one update; it is in the write-ahead log when this returns, and the log is in the kernel's hands."""
        self.dirty = self.unsynced = True
        self.shard.update(operation)

    def sync_log(self) -> None:
        """Have the kernel write the log to disk: what was applied before survives a power failure, too.

        May run in another thread than the rest.
        """
        self.unsynced = False
        _sync(self._log_folder)

    def log_bytes(self) -> int:
        """The size of the log, which a start reads and applies again. A part of it is room that is not used yet."""
        total = 0
        for path in self._log_folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # a flush in between removes some
                total += path.stat().st_size
        return total

    def write_back(self) -> None:
        """Have the kernel write all it holds of the shard's files to disk. May run in another thread than the rest.

        `flush` would do it too, but with the interpreter in its hands: a second and more while a disk is busy.
        """
        _sync(self.folder)

    def flush(self) -> bool:
        """Write segments to disk and shorten the log. Returns whether there was anything to do.

        Keeps the interpreter for 60 ms of work at 100,000 points, and for the waits for the disk.
        """
        if not self.dirty:
            return False
        self.dirty = self.unsynced = False
        self.shard.flush()
        return True

    @property
    def _log_folder(self) -> Path:
        return self.folder / _SHARD_FOLDER / "wal"


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue  # segments come and go
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Store:
    """All collections of one folder.

    A collection exists from the moment its configuration file is in place (an atomic rename, after the shard was
    made) until that file is removed (before the shard is): a crash in between leaves a folder without the
    file, which the next start clears away.
    """

    def __init__(self, folder: Path) -> None:
        """Open the folder and every collection in it. Raises `FolderInUse`; OSError when it cannot be written."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = _lock_folder(folder)
        self._collections: dict[str, Collection] = {}
        for path in sorted(folder.iterdir()):
            if not path.is_dir():
                continue
            if (path / _CONFIG_FILE).exists():
                self._collections[path.name] = _load(path)
            elif (path / _SHARD_FOLDER).exists() or not any(path.iterdir()):
                shutil.rmtree(path)

    def names(self) -> list[str]:
        return sorted(self._collections)

    def has(self, name: str) -> bool:
        return name in self._collections

    def get(self, name: str) -> Collection:
        """The collection; NOT_FOUND when there is none of that name."""
        collection = self._collections.get(name)
        if collection is None:
            raise collection_missing(name)
        return collection

    def create(self, name: str, config: CollectionConfig) -> Collection:
        """A new, empty collection; ALREADY_EXISTS, or INVALID_ARGUMENT for a name that is not a plain file name."""
        if not _NAME.fullmatch(name):
            raise invalid(f"Validation error: collection name {name[:80]!r} must match {_NAME.pattern}")
        if name in self._collections:
            raise EngineError(grpc.StatusCode.ALREADY_EXISTS, f"Wrong input: Collection `{name}` already exists!")
        path = self._folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        shard = edge.EdgeShard.create(str(path / _SHARD_FOLDER), config.to_edge())
        draft = path / (_CONFIG_FILE + ".new")
        draft.write_text(config.to_json(), encoding="utf-8")
        draft.replace(path / _CONFIG_FILE)
        collection = Collection(name=name, config=config, shard=shard, folder=path)
        self._collections[name] = collection
        return collection

    def delete(self, name: str) -> bool:
        """Remove a collection with its files. Returns whether it was there."""
        collection = self._collections.pop(name, None)
        if collection is None:
            return False
        path = self._folder / name
        (path / _CONFIG_FILE).unlink()
        collection.shard.close()
        shutil.rmtree(path)
        return True

    def dirty(self) -> list[Collection]:
        """The collections with updates that are in the log alone."""
        return [collection for collection in self._collections.values() if collection.dirty]

    def compact(self) -> list[str]:
        """Build graphs and drop deleted points in every collection; returns the names of those that changed.

        Keeps the interpreter for seconds to minutes (43 s at 100,000 points), so never while serving.
        """
        changed: list[str] = []
        for collection in self._collections.values():
            if collection.shard.optimize():
                changed.append(collection.name)
                collection.dirty = True
        return changed

    def close(self) -> None:
        """Flush and close every shard, and give the folder back."""
        for collection in self._collections.values():
            collection.flush()
            collection.shard.close()
        self._collections.clear()
        self._lock.close()


def _lock_folder(folder: Path) -> IO[str]:
    """Take the lock, which the kernel drops with the process, and leave our process id for the next one to tell."""
    handle = (folder / _LOCK_FILE).open("a+", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        owner = handle.read(20).strip() or "unknown"
        handle.close()
        raise FolderInUse(
            f"data folder is in use by another engine (process {owner}); stop it or choose another folder"
        ) from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def _load(path: Path) -> Collection:
    config = CollectionConfig.from_json((path / _CONFIG_FILE).read_text(encoding="utf-8"))
    shard = edge.EdgeShard.load(str(path / _SHARD_FOLDER))
    return Collection(name=path.name, config=config, shard=shard, folder=path)
