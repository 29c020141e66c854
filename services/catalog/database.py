"""Connections, transactions and threads: SQL runs here, in a bounded pool, and never on the event loop."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool

from services.catalog.migrate import migrate
from services.catalog.settings import CatalogSettings
from services.common.errors import Reason, Unavailable

T = TypeVar("T")

#: A transaction that lost to another one is repeated this often; PostgreSQL says which (deadlock, serialization).
_TRIES = 4
_LOST_RACE = frozenset({"40001", "40P01"})
_RETRY_AFTER_S = 1.0


class Database:
    """Runs functions of a connection as transactions: `read` in one snapshot, `write` alone or with row locks.

    SQLite: WAL, readers beside one writer thread, every write BEGIN IMMEDIATE and synced before it returns. PostgreSQL:
    reads REPEATABLE READ READ ONLY, writes READ COMMITTED. Functions may run more than once, so they only touch the
    connection. A caller that goes away before its turn is skipped; a transaction that began is finished.
    """

    def __init__(self, settings: CatalogSettings, *, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._waiting = 0
        self._lock = threading.Lock()
        self._closed = False
        self._sqlite = settings.url.startswith("sqlite")
        self._threads = ThreadPoolExecutor(settings.pool_size, thread_name_prefix="catalog")
        if self._sqlite:
            self._writer: Executor = ThreadPoolExecutor(1, thread_name_prefix="catalog-write")
            self._write_engine = _sqlite_engine(settings, write=True)
            self._read_engine = _sqlite_engine(settings, write=False)
        else:
            self._writer = self._threads
            self._write_engine = _postgres_engine(settings)
            self._read_engine = self._write_engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    async def open(self) -> None:
        """Bring the schema up to date; several processes may do so at once. Errors: CATALOG_UNAVAILABLE."""
        await self._submit(self._writer, self._open)

    def _open(self) -> None:
        if self._sqlite and (file := self._write_engine.url.database):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        _translated(lambda: migrate(self._write_engine))

    async def aclose(self) -> None:
        """Finish what runs, refuse what comes, close the connections."""
        self._closed = True
        await asyncio.to_thread(self._close)

    def now_us(self) -> int:
        return int(self._now() * 1_000_000)

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._submit(self._threads, lambda: self._run(self._read_engine, work))

    async def write(self, work: Callable[[Connection], T]) -> T:
        return await self._submit(self._writer, lambda: self._run(self._write_engine, work))

    async def _submit(self, executor: Executor, call: Callable[[], T]) -> T:
        with self._lock:
            if self._closed:
                raise _unavailable("the catalogue is closed")
            if self._waiting >= self._settings.max_waiting:
                raise _unavailable(f"the catalogue is busy: {self._waiting} calls are waiting, no more are let in")
            self._waiting += 1
        try:
            future = executor.submit(call)
        except RuntimeError as error:
            self._left()
            raise _unavailable("the catalogue is closed") from error
        future.add_done_callback(self._left)
        try:
            async with asyncio.timeout(self._settings.call_timeout_s):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise _unavailable(f"the catalogue did not answer within {self._settings.call_timeout_s:g} s") from error

    def _left(self, _: "Future[Any] | None" = None) -> None:
        with self._lock:
            self._waiting -= 1

    def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        def transaction() -> T:
            with engine.begin() as connection:
                return work(connection)

        return _translated(transaction)

    def _close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._writer.shutdown(wait=True, cancel_futures=True)
        self._write_engine.dispose()
        if self._sqlite:
            self._read_engine.dispose()


def _translated(call: Callable[[], T]) -> T:
    """Run `call`, again where another transaction won, and say CATALOG_UNAVAILABLE where the database cannot."""
    for attempt in range(1, _TRIES + 1):
        try:
            return call()
        except PoolTimeoutError as error:
            raise _unavailable("the catalogue is busy: no connection became free in time") from error
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) in _LOST_RACE and attempt < _TRIES:
                continue
            if isinstance(error, OperationalError) or error.connection_invalidated:
                raise _unavailable("the catalogue's database is busy or cannot be reached; try again") from error
            raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _unavailable(message: str) -> Unavailable:
    return Unavailable(message, reason=Reason.CATALOG_UNAVAILABLE, retry_after_s=_RETRY_AFTER_S)


def _sqlite_engine(settings: CatalogSettings, *, write: bool) -> Engine:
    url = make_url(settings.url)
    if not url.database or url.database == ":memory:":
        raise ValueError("the catalogue needs a file: sqlite:////path/to/catalog.db")
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=1 if write else settings.pool_size,
        max_overflow=0,
        pool_timeout=settings.call_timeout_s,
        connect_args={"check_same_thread": False, "timeout": settings.busy_timeout_ms / 1000},
    )

    def connected(connection: Any, _: object) -> None:
        # The driver would begin transactions late and DEFERRED; we begin them ourselves, below.
        connection.isolation_level = None
        for pragma in ("synchronous=FULL", "temp_store=MEMORY", "cache_size=-16384"):
            connection.execute(f"PRAGMA {pragma}").close()
        if not write:
            connection.execute("PRAGMA query_only=ON").close()

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begin)
    return engine


def _postgres_engine(settings: CatalogSettings) -> Engine:
    wait_ms = settings.busy_timeout_ms
    call_ms = int(settings.call_timeout_s * 1000)
    return create_engine(
        make_url(settings.url).set(drivername="postgresql+psycopg"),
        pool_size=settings.pool_size,
        max_overflow=0,
        pool_timeout=settings.call_timeout_s,
        pool_pre_ping=False,
        pool_use_lifo=True,
        connect_args={
            "connect_timeout": max(1, call_ms // 1000),
            "options": (
                f"-c lock_timeout={wait_ms} -c statement_timeout={call_ms} -c timezone=UTC"
                f" -c idle_in_transaction_session_timeout={2 * call_ms}"
            ),
        },
    )
