"""Child processes that wait for commands, so that two sides of a comparison take turns and never compute together.

A command is a JSON line on the child's standard input, its answer a JSON line on standard output. What a child times it
times itself, so that the way here and back is not in the figure.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
_END_TIMEOUT_S = 20.0


class Child:
    """A process that runs `python ARGUMENTS` from the root of the repository. Use it as a context manager."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        python: Path | str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [str(python), *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, command: str, **values: Any) -> dict[str, Any]:
        """Send a command and wait for its answer. Raises RuntimeError when the child ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **values}) + "\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            if line.startswith('{"answer"'):  # libraries print to the same stream
                return json.loads(line)["answer"]
        raise RuntimeError(f"the child ended with status {self._process.wait()} when it was asked to {command}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def answer_commands(handlers: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """What a child does: answer commands until its standard input ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        reply = handlers[asked.pop("command")](**asked)
        print(json.dumps({"answer": reply}), flush=True)
