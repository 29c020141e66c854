"""Functions that worker processes run in tests."""

import os
import signal
import sys
import time


def double(value: int) -> int:
    return 2 * value


def pid() -> int:
    return os.getpid()


def hang() -> None:
    while True:
        time.sleep(60)


def eat_memory(mib: int) -> int:
    return len(bytearray(mib << 20))


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def heavy_modules() -> list[str]:
    return [name for name in ("sqlalchemy", "torch", "qdrant_client", "services.catalog") if name in sys.modules]


SEGFAULT, KILL = int(signal.SIGSEGV), int(signal.SIGKILL)


_kept: list[bytearray] = []


def keep_memory(mib: int) -> int:
    """Take memory and never give it back, as libraries do; the process that did."""
    _kept.append(bytearray(mib << 20))
    return os.getpid()


def fill_and_fail_if_used(mib: int) -> int:
    """Takes memory, then fails for the lack of it as an inference library does: with an error of its own."""
    used = bool(_kept)
    keep_memory(mib)
    if used:
        raise RuntimeError("could not create a primitive")
    return os.getpid()


def growth_of_ocr(pages: int) -> int:
    """Bytes of private memory by which this process grew while it read lines of ever new widths."""
    import numpy as np

    from services.ingestor.parsing.ocr import engine
    from services.ingestor.workers import data_bytes

    reader = engine()
    assert reader is not None
    before = 0
    for number in range(pages + 2):
        page = np.full((96, 400 + 56 * number, 3), 255, dtype=np.uint8)
        page[30:62, 20:-20:9] = 0
        reader.upright_score([page, page[:, 20:], page[:, 31:]])  # type: ignore[attr-defined]
        if number == 1:
            before = data_bytes()
    return data_bytes() - before
