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
