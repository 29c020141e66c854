"""Worker processes for work on hostile or heavy content: bounded in number, time and memory, replaced when they die."""

import asyncio
import ctypes
import multiprocessing
import os
import resource
from collections.abc import Callable
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pebble import ProcessExpired, ProcessPool

from services.common.errors import DocumentError, Overloaded, Reason, ServiceError
from services.domain.blocks import DocumentKind, DocumentMetadata, ParsedPart
from services.ingestor.parsing.parser import ParseOptions

P = ParamSpec("P")
T = TypeVar("T")

_RECYCLE_AFTER_TASKS = 2000
_MAX_WAITING = 256
_QUEUE_SECONDS = 900.0
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3
_OUT_OF_MEMORY, _REPLACE_WORKER = 77, 78
#: Shares of a worker's memory: above the first, memory that earlier tasks left may be why a task fails; above the
#: second, no further task is begun; above the third, an error of any kind is taken for lack of memory.
_USED, _GROWN, _FULL = 0.1, 0.7, 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceInfo:
    kind: DocumentKind
    page_count: int
    metadata: DocumentMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedStretch:
    """A part, where to go on (None: that was the last), and what the document is."""

    part: ParsedPart
    next_page: int | None
    source: SourceInfo


class WorkerPool:
    """Runs functions in spawned processes; nothing starts before the first call.

    Each child has the memory it needs to start plus `memory_mib` (RLIMIT_DATA) and two malloc arenas. It is
    replaced after 2,000 tasks, and as soon as a task comes to it while it still holds much of that memory (a new one
    costs seconds: imports, tokenizer, language models). A task for which a used child's memory was not enough is done
    again in a new one: only what is too much for an empty process is DOCUMENT_LIMIT.
    A task that runs too long is killed with its process; so is one whose caller goes away.
    """

    def __init__(self, *, workers: int, memory_mib: int, recycle_after_tasks: int = _RECYCLE_AFTER_TASKS) -> None:
        self._workers = workers
        self._memory_mib = memory_mib
        self._recycle_after_tasks = recycle_after_tasks
        self._slots = asyncio.Semaphore(workers)
        self._waiting = 0
        self._pool: ProcessPool | None = None
        self._closed = False

    async def run(self, fn: Callable[..., T], *args: object, timeout_s: float, **kwargs: object) -> T:
        """`fn(*args)` in a worker; function, arguments and value are pickled.

        What `fn` raises comes back as it is. Further errors: DocumentError DOCUMENT_LIMIT when the time or memory limit
        was reached, UNREADABLE_DOCUMENT when the process died; Overloaded when too many calls wait for a worker.
        """
        await self._enter()
        try:
            return await self._attempt(fn, args, kwargs, timeout_s)
        finally:
            self._slots.release()

    async def parse_part(
        self, path: Path, options: ParseOptions, first_page: int = 1, *, timeout_s: float | None = None
    ) -> ParsedStretch:
        """The stretch of the document that begins at `first_page`. Errors: those of `run` and of the parser."""
        return await self.run(parse_stretch, path, options, first_page, timeout_s=timeout_s or options.max_seconds)

    async def aclose(self) -> None:
        """Kill the workers; calls that still run fail as cancelled."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(_end, pool)

    async def _enter(self) -> None:
        if self._waiting >= _MAX_WAITING:
            raise Overloaded(f"{self._waiting} calls already wait for a worker process", retry_after_s=30.0)
        self._waiting += 1
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise Overloaded("no worker process became free", retry_after_s=30.0) from None
        finally:
            self._waiting -= 1

    async def _attempt(
        self, fn: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object], timeout_s: float
    ) -> T:
        broken = False
        for _ in range(self._workers + 2):  # each of the workers may be full, and have to be replaced first
            pool = self._running()
            try:
                future = pool.schedule(_guarded, args=(fn, args, kwargs, self._memory_mib << 20), timeout=timeout_s)
                return await asyncio.wrap_future(future)
            except (BrokenProcessPool, RuntimeError) as error:
                # A worker that died between two tasks breaks the whole pool: no fault of this document.
                if broken or pool.active or self._closed:
                    if isinstance(error, BrokenProcessPool):
                        raise _died(None) from error
                    raise
                broken = True
            except TimeoutError as error:
                raise DocumentError(
                    f"reading the document took longer than {timeout_s:.0f} s, the limit", reason=Reason.DOCUMENT_LIMIT
                ) from error
            except ProcessExpired as error:
                if error.exitcode == _REPLACE_WORKER:
                    continue
                raise (
                    self._out_of_memory() if error.exitcode in (-9, _OUT_OF_MEMORY) else _died(error.exitcode)
                ) from error
            except FutureCancelled as error:
                raise asyncio.CancelledError from error
        raise self._out_of_memory()

    def _running(self) -> ProcessPool:
        if self._closed:
            raise RuntimeError("the worker pool is closed")
        if self._pool is None or not self._pool.active:
            if self._pool is not None:
                _end(self._pool)
            context: Any = multiprocessing.get_context("spawn")
            self._pool = ProcessPool(
                max_workers=self._workers,
                max_tasks=self._recycle_after_tasks,
                initializer=_limit,
                initargs=(self._memory_mib,),
                context=context,
            )
        return self._pool

    def _out_of_memory(self) -> DocumentError:
        return DocumentError(
            f"reading the document needs more than {self._memory_mib} MiB, the limit", reason=Reason.DOCUMENT_LIMIT
        )


def parse_stretch(path: Path, options: ParseOptions, first_page: int) -> ParsedStretch:
    """Open the document, read the stretch that begins at `first_page`, close it. Raises DocumentError."""
    from services.ingestor.parsing import open_source

    source = open_source(path, options)
    try:
        part = next(iter(source.parts(first_page)), None)
        if part is None:
            raise DocumentError(f"page {first_page} is beyond the end", reason=Reason.UNREADABLE_DOCUMENT)
        more = source.page_count > 0 and part.last_page < source.page_count
        info = SourceInfo(kind=source.kind, page_count=source.page_count, metadata=source.metadata)
        return ParsedStretch(part=part, next_page=part.last_page + 1 if more else None, source=info)
    finally:
        source.close()


def _died(exit_code: int | None) -> DocumentError:
    shown = "" if exit_code is None else f" (exit code {exit_code})"
    return DocumentError(f"the process that read the document died{shown}", reason=Reason.UNREADABLE_DOCUMENT)


def _end(pool: ProcessPool) -> None:
    with suppress(Exception):
        pool.stop()
        pool.join(timeout=10)


def _guarded(fn: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object], memory_bytes: int) -> T:
    """`fn` in a child. One that runs out of memory ends: half-loaded libraries would fail the next document, too.

    A library that gets no memory may say so in any error it likes, hence the look at how full the process is.
    """
    held = _share_held(memory_bytes)
    if held > _GROWN:
        os._exit(_REPLACE_WORKER)
    full = _REPLACE_WORKER if held > _USED else _OUT_OF_MEMORY
    try:
        return fn(*args, **kwargs)
    except MemoryError:
        os._exit(full)
    except ServiceError:
        if full == _REPLACE_WORKER and _share_held(memory_bytes) > _FULL:
            os._exit(full)
        raise
    except BaseException:
        if _share_held(memory_bytes) > _FULL:
            os._exit(full)
        raise


def _share_held(memory_bytes: int) -> float:
    """How much of the `memory_bytes` above its start this process holds, 0 to 1; 0 where no limit was set."""
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return 1 - (limit - data_bytes()) / memory_bytes if limit > 0 else 0.0


def _limit(memory_mib: int) -> None:
    """Bound this process: the private memory it has now plus `memory_mib`, and no core files.

    RLIMIT_DATA counts what is allocated; RLIMIT_AS would count reservations of inference libraries that are never used.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")  # kernels OpenVINO keeps beside its own cache
    with suppress(OSError, AttributeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_M_ARENA_MAX, 2)
        allocator.mallopt(_M_MMAP_THRESHOLD, 1 << 20)  # tensors of a page go back to the system when they are freed
    limit = data_bytes() + (memory_mib << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def data_bytes() -> int:
    """Private data of this process (VmData); 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text(encoding="ascii").split()[5]) * resource.getpagesize() if statm.exists() else 0
