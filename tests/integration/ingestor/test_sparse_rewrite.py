"""BM25 weights follow the average length of the passages: rewritten, they equal those of a fresh ingestion."""

from services.catalog.job_types import JobKind
from services.catalog.types import KnowledgeBase
from services.embedder.bm25 import Bm25Encoder
from services.index.types import IndexQuery, SparseVector
from tests.helpers.ingestion import SCHEMA, TENANT, Plant, paragraphs

_LONG = "\n\n".join(
    f"Clause {n} says that {' '.join(f'item{n}x{k}' for k in range(60))} belongs to unit {n}." for n in range(6)
)


async def ingest(plant: Plant, kb: KnowledgeBase, name: str, text: str) -> None:
    await plant.shop.put(kb, name, text)
    job = await plant.shop.lease()
    checkpoint, live = await plant.pipeline.run(job, plant.shop.progress(job))
    assert live
    await plant.shop.catalog.jobs.finish(job.id, "worker")
    await plant.rewrite.watch(TENANT, kb.id, checkpoint.average_length)


async def fresh(plant: Plant, kb_id: KnowledgeBase) -> KnowledgeBase:
    return await plant.shop.catalog.knowledge_bases.get(TENANT, kb_id.id)


async def keyword_scores(plant: Plant, kb: KnowledgeBase, query: str) -> dict[str, float]:
    """Score of each passage, by its text: a product of its stored weights."""
    vector = Bm25Encoder().query_vector(query, language="en")
    found = await plant.reader.search(
        IndexQuery(
            schema=SCHEMA,
            kb_id=kb.id,
            index_version=kb.index.id,
            dense=(),
            sparse=(SparseVector(indices=vector.indices, values=vector.values),),
            limit=100,
        ),
        timeout_s=10,
    )
    passages = await plant.reader.fetch(SCHEMA, kb.id, [hit.point_id for hit in found[0]], timeout_s=10)
    return {passages[hit.point_id].text: round(hit.score, 4) for hit in found[0]}


async def waiting(plant: Plant, kb: KnowledgeBase) -> int:
    page = await plant.shop.catalog.jobs.list(TENANT, kb_id=kb.id, kinds=(JobKind.REWRITE_SPARSE,))
    return len(page.entries)


async def test_watch_when_the_average_stays_near_then_nothing_is_queued(plant: Plant) -> None:
    kb = await plant.shop.kb(size=200)
    await ingest(plant, kb, "a.txt", paragraphs(6))
    await ingest(plant, kb, "b.txt", paragraphs(6, "air"))
    assert await waiting(plant, kb) == 0


async def test_watch_when_a_document_was_weighed_with_another_average_then_a_rewrite_is_queued(plant: Plant) -> None:
    kb = await plant.shop.kb(size=200)
    await ingest(plant, kb, "a.txt", paragraphs(6))
    written = (await fresh(plant, kb)).index.written_average_length
    await plant.rewrite.watch(TENANT, kb.id, written * 1.5)
    assert await waiting(plant, kb) == 1


async def test_rewrite_when_the_average_has_moved_then_weights_equal_those_of_a_fresh_ingestion(plant: Plant) -> None:
    kb = await plant.shop.kb(size=16)
    await ingest(plant, kb, "short.txt", paragraphs(8))
    for number in range(3):
        await ingest(plant, kb, f"long{number}.txt", f"{_LONG}\n\nThe end of part {number}.")
    drifted = await fresh(plant, kb)
    before, now = drifted.index.written_average_length, drifted.index.average_length
    assert now > before * 1.15
    assert await waiting(plant, kb) == 1
    old = await keyword_scores(plant, drifted, "rail travel unit 3")
    job = await plant.shop.lease(JobKind.REWRITE_SPARSE)
    await plant.rewrite.rewrite(job, plant.shop.progress(job))
    rewritten = await fresh(plant, kb)
    assert rewritten.index.written_average_length == now
    new = await keyword_scores(plant, rewritten, "rail travel unit 3")
    assert new.keys() == old.keys()
    assert new != old

    other = await plant.shop.kb(size=16)
    await plant.shop.catalog.versions.record_sparse_rewrite(other.index.id, now)
    await ingest(plant, other, "short.txt", paragraphs(8))
    for number in range(3):
        await ingest(plant, other, f"long{number}.txt", f"{_LONG}\n\nThe end of part {number}.")
    assert await keyword_scores(plant, await fresh(plant, other), "rail travel unit 3") == new
