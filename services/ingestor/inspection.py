"""A first look at an upload, before it is accepted: is it of a kind we read, and can it be opened?"""

from pathlib import Path

from services.ingestor.parsing import ParseOptions, unlock
from services.ingestor.workers import WorkerPool


class ContentInspector:
    """Looks in a worker process: the content is hostile until shown otherwise."""

    def __init__(self, workers: WorkerPool, timeout_s: float) -> None:
        self._workers = workers
        self._timeout_s = timeout_s

    async def inspect(self, path: Path, name: str, password: str) -> Path:
        """The file to store: `path`, or an unlocked copy beside it where the document was encrypted.

        Errors: UNSUPPORTED_FORMAT, PASSWORD_REQUIRED, UNREADABLE_DOCUMENT, DOCUMENT_LIMIT.
        """
        copy = path.with_name("unlocked")
        options = ParseOptions(filename=name, password=password or None)
        unlocked = await self._workers.run(unlock, path, options, copy, timeout_s=self._timeout_s)
        return copy if unlocked else path
