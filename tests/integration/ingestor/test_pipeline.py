"""The pipeline over a real catalogue, blobs and engine: killed at each checkpoint, it goes on and leaves no trace."""

from dataclasses import replace

import pytest

from services.catalog.job_types import JobKind
from services.catalog.types import DocumentState, KnowledgeBase
from services.common.errors import DocumentError, Reason
from services.domain.ids import DocVersionId
from services.ingestor.checkpoint import Checkpoint
from services.ingestor.cleanup import Cleanup
from tests.helpers.ingestion import SCHEMA, TENANT, Killed, Plant, paragraphs

_CHUNKS = 10


async def points_of(plant: Plant, kb: KnowledgeBase) -> dict[DocVersionId, int]:
    return await plant.writer.doc_versions(SCHEMA, kb.id, timeout_s=10)


async def texts_of(plant: Plant, kb: KnowledgeBase, version: DocVersionId) -> list[str]:
    passages = plant.reader.passages(SCHEMA, kb.id, index_version=kb.index.id, doc_version=version, timeout_s=10)
    return [passage.text for passage in sorted([p async for p in passages], key=lambda p: p.ordinal)]


async def test_run_when_a_document_is_new_then_its_points_are_written_and_it_is_live(plant: Plant) -> None:
    kb = await plant.shop.kb()
    outcome = await plant.shop.put(kb, "a.txt", paragraphs(_CHUNKS))
    job = await plant.shop.lease()
    checkpoint, live = await plant.pipeline.run(job, plant.shop.progress(job))
    document = await plant.shop.catalog.documents.get(TENANT, outcome.document_id)
    assert live
    assert (document.state, document.chunk_count) == (DocumentState.DONE, _CHUNKS)
    assert await points_of(plant, kb) == {outcome.version: _CHUNKS}
    assert checkpoint.written == _CHUNKS
    index = (await plant.shop.catalog.knowledge_bases.get(TENANT, kb.id)).index
    assert index.written_average_length == pytest.approx(index.average_length)
    for stage in ("parse", "chunk", "write", "switch"):
        measured = plant.metrics.registry.get_sample_value("pergamon_ingest_stage_seconds_count", {"stage": stage})
        assert measured == 1, stage


@pytest.mark.parametrize("stop_after", [1, 2])
async def test_run_when_killed_at_a_checkpoint_then_the_next_attempt_goes_on_there(
    plant: Plant, stop_after: int
) -> None:
    kb = await plant.shop.kb()
    outcome = await plant.shop.put(kb, "a.txt", paragraphs(_CHUNKS))
    job = await plant.shop.lease()
    with pytest.raises(Killed):
        await plant.pipeline.run(job, plant.shop.progress(job, stop_after=stop_after))
    assert (await plant.shop.catalog.documents.get(TENANT, outcome.document_id)).live_version is None
    before = len(plant.shop.embedder.embedded)
    resumed = await plant.shop.catalog.jobs.get(TENANT, job.id)
    _, live = await plant.pipeline.run(resumed, plant.shop.progress(resumed))
    assert live
    assert before == stop_after * plant.shop.settings.embed_batch
    assert len(plant.shop.embedder.embedded) == _CHUNKS, "a chunk was embedded twice, or never"
    assert await points_of(plant, kb) == {outcome.version: _CHUNKS}
    texts = await texts_of(plant, kb, outcome.version)
    assert [text.split()[1] for text in texts] == [str(n) for n in range(_CHUNKS)]


async def test_run_when_the_cut_has_changed_between_attempts_then_no_point_of_the_old_cut_is_left(plant: Plant) -> None:
    kb = await plant.shop.kb()
    outcome = await plant.shop.put(kb, "a.txt", paragraphs(_CHUNKS))
    job = await plant.shop.lease()
    plant.shop.embedder.before_embed = lambda: None
    with pytest.raises(Killed):
        await plant.pipeline.run(job, plant.shop.progress(job, stop_after=2))
    await plant.shop.catalog.documents.change_metadata(
        TENANT, outcome.document_id, lambda known: replace(known, title="New title")
    )
    parts = [blob async for blob in plant.shop.blobs.list()]
    assert len(parts) == 2
    resumed = await plant.shop.catalog.jobs.get(TENANT, job.id)
    _, live = await plant.pipeline.run(resumed, plant.shop.progress(resumed))
    assert live
    assert await points_of(plant, kb) == {outcome.version: _CHUNKS}
    passages = plant.reader.passages(
        SCHEMA, kb.id, index_version=kb.index.id, doc_version=outcome.version, timeout_s=10
    )
    assert {passage.embedding_text.split(":")[0] async for passage in passages} == {"New title"}


async def test_run_when_points_were_written_and_no_checkpoint_tells_then_they_do_not_outlive_another_cut(
    plant: Plant,
) -> None:
    kb = await plant.shop.kb()
    outcome = await plant.shop.put(kb, "a.txt", paragraphs(3))
    job = await plant.shop.lease()
    progress = plant.shop.progress(job)

    async def killed_before_the_switch(stage: str, done: int, total: int) -> None:
        if stage == "write":
            raise Killed

    progress.report = killed_before_the_switch
    with pytest.raises(Killed):
        await plant.pipeline.run(job, progress)
    resumed = await plant.shop.catalog.jobs.get(TENANT, job.id)
    kept = Checkpoint.from_json(resumed.checkpoint)
    assert (kept.parts, kept.written) == (0, 0)
    assert await points_of(plant, kb) == {outcome.version: 3}
    version = await plant.shop.catalog.versions.get(TENANT, outcome.version)
    await plant.shop.blobs.put(version.blob_key, b"One paragraph is left.")  # as another parser might have read it
    _, live = await plant.pipeline.run(resumed, plant.shop.progress(resumed))
    assert live
    assert await points_of(plant, kb) == {outcome.version: 1}


async def test_run_when_the_stored_checkpoint_is_of_another_format_then_the_work_begins_anew(plant: Plant) -> None:
    kb = await plant.shop.kb()
    outcome = await plant.shop.put(kb, "a.txt", paragraphs(_CHUNKS))
    job = await plant.shop.lease()
    with pytest.raises(Killed):
        await plant.pipeline.run(job, plant.shop.progress(job, stop_after=2))
    old = replace(job, checkpoint={"format": 0, "parts": 7})
    _, live = await plant.pipeline.run(old, plant.shop.progress(job))
    assert live
    assert await points_of(plant, kb) == {outcome.version: _CHUNKS}


async def test_run_when_a_chunk_did_not_change_then_its_vector_is_not_made_again(plant: Plant) -> None:
    kb = await plant.shop.kb()
    await plant.shop.put(kb, "a.txt", paragraphs(_CHUNKS))
    job = await plant.shop.lease()
    await plant.pipeline.run(job, plant.shop.progress(job))
    await plant.shop.catalog.jobs.finish(job.id, "worker")
    plant.shop.embedder.embedded.clear()
    await plant.shop.put(kb, "a.txt", paragraphs(_CHUNKS).replace("zone 4", "zone forty-four"))
    job = await plant.shop.lease()
    await plant.pipeline.run(job, plant.shop.progress(job))
    assert len(plant.shop.embedder.embedded) == 1
    assert "forty-four" in plant.shop.embedder.embedded[0]


async def test_run_when_the_document_was_deleted_meanwhile_then_nothing_is_live_and_clean_up_removes_all(
    plant: Plant,
) -> None:
    kb = await plant.shop.kb()
    outcome = await plant.shop.put(kb, "a.txt", paragraphs(3))
    job = await plant.shop.lease()
    progress = plant.shop.progress(job)

    async def deleted_while_it_is_cut(stage: str, done: int, total: int) -> None:
        if stage == "chunk":
            await plant.shop.catalog.documents.delete(TENANT, outcome.document_id)

    progress.report = deleted_while_it_is_cut
    _, live = await plant.pipeline.run(job, progress)
    assert not live
    assert await points_of(plant, kb) == {outcome.version: 3}
    cleanup = Cleanup(
        catalog=plant.shop.catalog, blobs=plant.shop.blobs, index=plant.writer, settings=plant.shop.settings
    )
    version = outcome.version
    retire = replace(job, kind=JobKind.RETIRE, version=version)
    await cleanup.retire(retire, plant.shop.progress(job))
    assert await points_of(plant, kb) == {}
    assert [blob async for blob in plant.shop.blobs.list()] == []
    await cleanup.retire(retire, plant.shop.progress(job))  # once more, as after a crash before it was recorded


async def test_run_when_there_is_no_text_then_the_reason_says_so(plant: Plant) -> None:
    kb = await plant.shop.kb()
    await plant.shop.put(kb, "a.txt", " \n\n ")
    job = await plant.shop.lease()
    with pytest.raises(DocumentError) as refused:
        await plant.pipeline.run(job, plant.shop.progress(job))
    assert refused.value.error_reason is Reason.NO_TEXT


async def test_run_when_the_text_is_longer_than_allowed_then_it_stops(plant: Plant) -> None:
    kb = await plant.shop.kb()
    await plant.shop.put(kb, "a.txt", paragraphs(3))
    job = await plant.shop.lease()
    plant.pipeline._settings = plant.shop.settings.model_copy(update={"max_document_chars": 50})
    with pytest.raises(DocumentError) as refused:
        await plant.pipeline.run(job, plant.shop.progress(job))
    assert refused.value.error_reason is Reason.DOCUMENT_LIMIT
