"""Any sequence of calls leaves the catalogue in a state that its promises describe."""

import asyncio
import shutil
from pathlib import Path

import pytest
from catalog_builders import TENANT, Clock, hidden, lease, make_kb, put, stats
from hypothesis import given, settings
from hypothesis import strategies as st

from services.catalog.catalog import Catalog, open_catalog
from services.catalog.job_types import JobKind
from services.catalog.settings import CatalogSettings
from services.catalog.types import KnowledgeBase, OnDuplicate
from services.domain.ids import DocumentId, DocVersionId

STEP = st.tuples(
    st.sampled_from(["upload", "activate", "fail", "cancel", "delete", "clean"]), st.integers(0, 2), st.integers(0, 2)
)


@given(steps=st.lists(STEP, min_size=5, max_size=25))
@settings(max_examples=30, deadline=None)
def test_any_sequence_of_calls_when_it_ends_then_one_live_version_and_true_totals(
    steps: list[tuple[str, int, int]], sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("model") / "catalog.db"
    shutil.copy(sqlite_template, path)
    asyncio.run(_play(path, steps))
    path.unlink()


async def _play(path: Path, steps: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    async with open_catalog(CatalogSettings(url=f"sqlite:///{path}", pool_size=1), now=clock) as catalog:
        kb = await make_kb(catalog)
        made: list[DocVersionId] = []
        cleaned: set[DocVersionId] = set()
        for call, name, content in steps:
            if call == "upload":
                outcome = await put(catalog, kb, f"{name}", f"{content}", on_duplicate=OnDuplicate.ALLOW)
                made.append(outcome.version)
                await catalog.versions.start(outcome.version)
            elif call == "clean":
                clock.forward(100)
                for job in await lease(catalog, kinds=(JobKind.RETIRE,), limit=3):
                    assert job.version is not None
                    assert await catalog.versions.retire_done(job.version)
                    assert await catalog.jobs.finish(job.id, "worker")
                    cleaned.add(job.version)
            elif made:
                await _act(catalog, kb, call, made[(3 * name + content) % len(made)])
            await _check(catalog, kb, set(made), cleaned)


async def _act(catalog: Catalog, kb: KnowledgeBase, call: str, version: DocVersionId) -> None:
    if call == "activate":
        await catalog.versions.activate(version, stats(chunks=version, length=10 * version))
        return
    if call == "fail":
        await catalog.versions.fail(version, "NO_TEXT", "nothing")
        return
    jobs = [job for job in (await catalog.jobs.list(TENANT, kb_id=kb.id)).entries if job.version == version]
    if call == "cancel":
        for job in jobs:
            if job.kind is JobKind.INGEST:
                await catalog.jobs.cancel(TENANT, job.id)
        return
    documents = {d.id for d in (await catalog.documents.list(TENANT, kb.id)).entries}
    for document_id in {job.document_id for job in jobs} & documents:
        assert isinstance(document_id, str)
        await catalog.documents.delete(TENANT, DocumentId(document_id))


async def _check(catalog: Catalog, kb: KnowledgeBase, made: set[DocVersionId], cleaned: set[DocVersionId]) -> None:
    documents = (await catalog.documents.list(TENANT, kb.id)).entries
    live = {document.live_version for document in documents} - {None}
    index = (await catalog.knowledge_bases.get(TENANT, kb.id)).index
    assert index.chunk_count == sum(version for version in live if version)
    assert index.bm25_length_total == 10 * index.chunk_count
    assert set(await hidden(catalog, kb.id)) == made - live - cleaned
    shown = await catalog.documents.documents_by_version(TENANT, sorted(made))
    assert live <= set(shown)
    assert {entry.document_id for entry in shown.values()} <= {document.id for document in documents}
