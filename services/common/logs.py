"""Structured logs: one event a line, as text for people or JSON for machines, with the call's ids on each."""

import logging
import sys
from typing import Literal

import structlog

Logger = structlog.stdlib.BoundLogger


def configure(level: str, form: Literal["text", "json"]) -> None:
    """Set up logging of the whole process, libraries included. Call once, from a main function."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Plain tracebacks: the library's own show the local variables of every frame, and with them the texts of callers.
    console = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer() if form == "json" else console
    last: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if form == "json":
        last.append(structlog.processors.format_exc_info)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*last, renderer]))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("httpx", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def get(name: str) -> Logger:
    """A logger for a module. The first argument of its methods is an event name, the rest are key words."""
    return structlog.stdlib.get_logger(name)
