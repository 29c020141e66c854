"""Bring a database to this program's schema, from empty or from an older one, whoever else is doing the same."""

import threading
import time
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text

from services.common.errors import Reason, Unavailable

_FOLDER = Path(__file__).parent / "migrations"
#: Any number will do as long as nothing else in the database locks it.
_ADVISORY_LOCK = 0x70657267
_WAL_DEADLINE_S = 30.0
_WAL_PAUSE_S = 0.05
#: Alembic keeps the running migration in module globals, so two databases of one process take turns.
_ONE_AT_A_TIME = threading.Lock()


def migrate(engine: Engine) -> None:
    """Apply what is missing in one transaction, under a lock that other processes wait for.

    Errors: CATALOG_UNAVAILABLE when the schema was written by a newer program.
    """
    if engine.dialect.name == "sqlite":
        _switch_to_wal(engine)
    with _ONE_AT_A_TIME, engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        config = _config(connection)
        head = ScriptDirectory.from_config(config).get_current_head()
        if MigrationContext.configure(connection).get_current_revision() == head:
            return
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise Unavailable(
                "the catalogue's schema is newer than this program; run the version that wrote it, or a later one",
                reason=Reason.CATALOG_UNAVAILABLE,
            ) from error


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _switch_to_wal(engine: Engine) -> None:
    """The change to WAL is kept in the file. While another opener makes it, it fails whatever the busy timeout."""
    deadline = time.monotonic() + _WAL_DEADLINE_S
    while True:
        raw = engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode=WAL").close()
            return
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_WAL_PAUSE_S)
        finally:
            raw.close()
