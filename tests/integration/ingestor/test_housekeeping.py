"""Housekeeping removes what crashes leave behind, and nothing that is in use."""

import os
import time
from pathlib import Path

import pytest

from services.catalog.types import KnowledgeBase
from services.common.clock import FakeClock
from services.domain.blocks import DocumentMetadata
from services.domain.chunks import Chunk
from services.domain.ids import DocumentId, DocVersionId
from services.index.types import IndexedDocument, PointWrite, SparseVector
from services.ingestor.blob_keys import uploads_prefix, version_prefix
from services.ingestor.housekeeping import ORPHAN_AGE_S, SCRATCH_AGE_S, Housekeeping
from tests.helpers.ingestion import SCHEMA, TENANT, Killed, Plant, paragraphs, vector_of


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def housekeeping(plant: Plant, clock: FakeClock) -> Housekeeping:
    shop = plant.shop
    return Housekeeping(catalog=shop.catalog, blobs=shop.blobs, index=plant.writer, clock=clock, settings=shop.settings)


async def ingest(plant: Plant, kb: KnowledgeBase) -> DocVersionId:
    outcome = await plant.shop.put(kb, "a.txt", paragraphs(3))
    job = await plant.shop.lease()
    assert (await plant.pipeline.run(job, plant.shop.progress(job)))[1]
    return outcome.version


async def write_point(plant: Plant, kb: KnowledgeBase, version: int) -> None:
    """What a worker writes that does not know yet that its job is gone."""
    chunk = Chunk(
        ordinal=0, text="late", prefix="", section=(), first_page=None, last_page=None, boxes=(), start=0, end=4,
        word_count=1, token_count=1, content_hash="h",
    )  # fmt: skip
    sparse = SparseVector(indices=vector_of("x")[:1].astype("uint32"), values=vector_of("x")[:1])
    document = IndexedDocument(
        kb_id=kb.id, index_version=kb.index.id, document_id=DocumentId("doc_x"), doc_version=DocVersionId(version),
        name="x", metadata=DocumentMetadata(),
    )  # fmt: skip
    await plant.writer.write(
        SCHEMA, document, [PointWrite(chunk=chunk, dense=vector_of("late"), sparse=sparse)], timeout_s=10
    )


async def keys(plant: Plant) -> set[str]:
    return {blob.key async for blob in plant.shop.blobs.list()}


async def test_tidy_when_points_of_unknown_versions_are_there_then_only_they_go(
    plant: Plant, housekeeping: Housekeeping
) -> None:
    kb = await plant.shop.kb()
    live = await ingest(plant, kb)
    await write_point(plant, kb, 987_654)
    assert await plant.writer.doc_versions(SCHEMA, kb.id, timeout_s=10) == {live: 3, 987_654: 1}
    await housekeeping.tidy()
    assert await plant.writer.doc_versions(SCHEMA, kb.id, timeout_s=10) == {live: 3}


async def test_tidy_when_an_ingestion_is_in_work_then_its_points_and_blobs_stay(
    plant: Plant, housekeeping: Housekeeping, clock: FakeClock
) -> None:
    kb = await plant.shop.kb()
    outcome = await plant.shop.put(kb, "a.txt", paragraphs(10))
    job = await plant.shop.lease()
    with pytest.raises(Killed):
        await plant.pipeline.run(job, plant.shop.progress(job, stop_after=1))
    before = await keys(plant)
    await housekeeping.tidy()
    clock.advance(2 * ORPHAN_AGE_S)
    await housekeeping.tidy()
    assert await plant.writer.doc_versions(SCHEMA, kb.id, timeout_s=10) == {outcome.version: 4}
    assert await keys(plant) == before


async def test_tidy_when_an_upload_was_never_recorded_then_its_bytes_go_after_an_hour(
    plant: Plant, housekeeping: Housekeeping, clock: FakeClock
) -> None:
    kb = await plant.shop.kb()
    await ingest(plant, kb)
    kept = await keys(plant)
    orphan = f"{uploads_prefix(TENANT, kb.id)}/orphan"
    await plant.shop.blobs.put(orphan, b"left over")
    await housekeeping.tidy()
    clock.advance(ORPHAN_AGE_S - 1)
    await housekeeping.tidy()
    assert await keys(plant) == {*kept, orphan}
    clock.advance(1)
    await housekeeping.tidy()
    assert await keys(plant) == kept


async def test_tidy_when_parses_of_unknown_versions_are_there_then_only_they_go(
    plant: Plant, housekeeping: Housekeeping
) -> None:
    kb = await plant.shop.kb()
    await ingest(plant, kb)
    kept = await keys(plant)
    await plant.shop.blobs.put(f"{version_prefix(TENANT, kb.id, DocVersionId(987_654))}/parts/000000.json.gz", b"x")
    await housekeeping.tidy()
    assert await keys(plant) == kept


async def test_tidy_when_points_of_an_unknown_knowledge_base_are_there_then_they_are_left_alone(
    plant: Plant, housekeeping: Housekeeping, tmp_path: Path
) -> None:
    known, deleted = await plant.shop.kb(), await plant.shop.kb()
    await ingest(plant, known)
    await ingest(plant, deleted)
    await plant.shop.catalog.knowledge_bases.delete(TENANT, deleted.id)
    await plant.shop.catalog.knowledge_bases.purge_done(deleted.id)
    await housekeeping.tidy()
    assert await plant.writer.count(SCHEMA, deleted.id, timeout_s=10) == 3
    assert await plant.writer.count(SCHEMA, known.id, timeout_s=10) == 3


async def test_tidy_when_a_scratch_folder_is_stale_then_it_goes_and_one_in_use_stays(
    plant: Plant, housekeeping: Housekeeping
) -> None:
    scratch = plant.shop.settings.data_dir / "scratch"
    stale, used = scratch / "upload-stale", scratch / "upload-used"
    old = time.time() - SCRATCH_AGE_S - 60
    for folder in (stale, used):
        folder.mkdir(parents=True)
        (folder / "original").write_bytes(b"x")
        os.utime(folder, (old, old))
    os.utime(stale / "original", (old, old))
    await housekeeping.tidy()
    assert [folder.name for folder in scratch.iterdir()] == ["upload-used"]


async def test_tidy_when_one_part_fails_then_the_others_are_done(
    plant: Plant, housekeeping: Housekeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = await plant.shop.kb()
    live = await ingest(plant, kb)
    await write_point(plant, kb, 987_654)

    async def broken() -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr(plant.shop.catalog.jobs, "prune", broken)
    await housekeeping.tidy()
    assert await plant.writer.doc_versions(SCHEMA, kb.id, timeout_s=10) == {live: 3}


async def test_tidy_when_there_are_more_knowledge_bases_than_fit_a_round_then_the_next_rounds_go_on(
    plant: Plant, housekeeping: Housekeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ingestor.housekeeping.KNOWLEDGE_BASES_A_ROUND", 1)
    first, second = await plant.shop.kb(), await plant.shop.kb()
    await ingest(plant, first)
    await ingest(plant, second)
    for kb in (first, second):
        await write_point(plant, kb, 987_654)
    counts = []
    for _ in range(2):
        await housekeeping.tidy()
        counts.append([await plant.writer.count(SCHEMA, kb.id, timeout_s=10) for kb in (first, second)])
    assert counts == [[3, 4], [3, 3]]


async def test_start_when_closed_at_once_then_no_task_is_left(plant: Plant, housekeeping: Housekeeping) -> None:
    await housekeeping.start()
    await housekeeping.aclose()
    assert housekeeping._task is not None
    assert housekeeping._task.done()
