"""What nobody asks for and a long life needs: forgetting old jobs, and removing what crashes have left behind."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from services.catalog.blobs import BlobStore
from services.catalog.catalog import Catalog
from services.catalog.types import KnowledgeBase
from services.common import logs
from services.common.clock import Clock
from services.common.errors import NotFound, ServiceError
from services.domain.ids import DocVersionId, KnowledgeBaseId
from services.index.schema import CollectionSchema
from services.index.writer import IndexWriter
from services.ingestor.blob_keys import uploads_prefix, version_prefix, versions_prefix
from services.ingestor.settings import IngestorSettings
from services.ingestor.types import schema_of

T = TypeVar("T")

_log = logs.get(__name__)

INTERVAL_S = 600.0
#: Knowledge bases looked at in one round; the next round goes on behind them.
KNOWLEDGE_BASES_A_ROUND = 20
#: An upload is recorded moments after its bytes are stored; a blob that nobody claims for so long is left over.
ORPHAN_AGE_S = 3600.0
#: Longer than any upload may take.
SCRATCH_AGE_S = 2 * 3600.0
_MAX_SUSPECTS = 10_000
_SLICE = 500


class Housekeeping:
    """One round every `interval_s`, the first at once. A part that fails is logged, and tried again next time.

    Only what belongs to a knowledge base of this catalogue is removed. Points of knowledge bases that the catalogue has
    no trace of are reported and left alone: the index may be shared, or the catalogue may be the wrong one.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        blobs: BlobStore,
        index: IndexWriter,
        clock: Clock,
        settings: IngestorSettings,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._index = index
        self._clock = clock
        self._scratch = settings.data_dir / "scratch"
        self._timeout_s = settings.index_timeout_s
        self._interval_s = interval_s
        self._after: KnowledgeBaseId | None = None
        self._suspects: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self.tidy()
            await asyncio.sleep(self._interval_s)

    async def tidy(self) -> None:
        """One round of bounded work."""
        await self._step("jobs", self._prune_jobs)
        await self._step("scratch", self._sweep_scratch)
        await self._step("knowledge_bases", self._visit_knowledge_bases)

    async def _step(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ServiceError as error:
            _log.warning("housekeeping_postponed", step=name, reason=error.error_reason.name, message=error.message)
        except Exception as error:  # a defect here must not end the rounds
            _log.error("housekeeping_defect", step=name, exc_info=error)

    async def _prune_jobs(self) -> None:
        if forgotten := await self._catalog.jobs.prune():
            _log.info("jobs_forgotten", count=forgotten)

    async def _sweep_scratch(self) -> None:
        if removed := await asyncio.to_thread(_remove_stale, self._scratch, time.time() - SCRATCH_AGE_S):
            _log.info("scratch_removed", count=removed)

    async def _visit_knowledge_bases(self) -> None:
        found = await self._catalog.cleanup.living(after=self._after, limit=KNOWLEDGE_BASES_A_ROUND)
        self._after = found[-1][1] if len(found) == KNOWLEDGE_BASES_A_ROUND else None
        schemas: set[CollectionSchema] = set()
        for tenant, kb_id in found:
            with suppress(NotFound):  # deleted since it was listed
                kb = await self._catalog.knowledge_bases.get(tenant, kb_id)
                await self._sweep_points(kb)
                await self._sweep_uploads(kb)
                await self._sweep_parses(kb)
                schemas.add(schema_of(kb))
        for schema in schemas:
            await self._report_strangers(schema)

    async def _sweep_points(self, kb: KnowledgeBase) -> None:
        """Points are read before the catalogue: a version is in the catalogue before its first point is written."""
        schema = schema_of(kb)
        stored = await self._index.doc_versions(schema, kb.id, timeout_s=self._timeout_s)
        for part in _slices(list(stored)):
            spent = await self._catalog.cleanup.spent_versions(kb.id, part)
            if spent:
                points = sum(stored[version] for version in spent)
                _log.warning("orphan_points_removed", knowledge_base=kb.id, versions=len(spent), points=points)
                await self._index.delete_versions(schema, kb.id, spent, timeout_s=self._timeout_s)

    async def _sweep_uploads(self, kb: KnowledgeBase) -> None:
        batch: list[str] = []
        async for blob in self._blobs.list(uploads_prefix(kb.tenant_id, kb.id)):
            batch.append(blob.key)
            if len(batch) == _SLICE:
                await self._sweep_upload_keys(kb, batch)
                batch = []
        await self._sweep_upload_keys(kb, batch)

    async def _sweep_upload_keys(self, kb: KnowledgeBase, keys: list[str]) -> None:
        """A store does not tell how old a blob is: it is removed when it was seen, unclaimed, an hour ago already."""
        if not keys:
            return
        unclaimed = set(await self._catalog.versions.unreferenced_blobs(kb.tenant_id, kb.id, tuple(keys)))
        now = self._clock.monotonic()
        for key in keys:
            if key not in unclaimed:
                self._suspects.pop(key, None)
            elif key not in self._suspects:
                if len(self._suspects) < _MAX_SUSPECTS:
                    self._suspects[key] = now
            elif now - self._suspects[key] >= ORPHAN_AGE_S:
                await self._blobs.delete_prefix(key)
                del self._suspects[key]
                _log.warning("orphan_upload_removed", knowledge_base=kb.id, key=key)

    async def _sweep_parses(self, kb: KnowledgeBase) -> None:
        """Parses of versions that were cleaned up already, written by a worker that had lost its job."""
        prefix = versions_prefix(kb.tenant_id, kb.id)
        stored: set[DocVersionId] = set()
        async for blob in self._blobs.list(prefix):
            number = blob.key.removeprefix(f"{prefix}/").split("/", 1)[0]
            if number.isdigit():
                stored.add(DocVersionId(int(number)))
        for part in _slices(sorted(stored)):
            for version in await self._catalog.cleanup.spent_versions(kb.id, part):
                await self._blobs.delete_prefix(version_prefix(kb.tenant_id, kb.id, version))
                _log.warning("orphan_parse_removed", knowledge_base=kb.id, version=version)

    async def _report_strangers(self, schema: CollectionSchema) -> None:
        stored = await self._index.knowledge_bases(schema, timeout_s=self._timeout_s)
        for part in _slices(list(stored)):
            strangers = await self._catalog.cleanup.unknown_knowledge_bases(part)
            if strangers:
                points = sum(stored[kb_id] for kb_id in strangers)
                shown = ", ".join(strangers[:10])
                _log.warning("points_of_unknown_knowledge_bases", count=len(strangers), points=points, first=shown)


def _slices(entries: Sequence[T]) -> list[Sequence[T]]:
    return [entries[start : start + _SLICE] for start in range(0, len(entries), _SLICE)]


def _remove_stale(scratch: Path, before: float) -> int:
    """Remove folders of uploads in which nothing was written since `before` (seconds since 1970); returns how many."""
    removed = 0
    for folder in scratch.iterdir() if scratch.is_dir() else ():
        with suppress(FileNotFoundError):  # an upload that ends just now
            newest = max(path.stat().st_mtime for path in (folder, *folder.glob("*")))
            if newest < before:
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
    return removed
