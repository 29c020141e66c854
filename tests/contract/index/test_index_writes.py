"""Writing, replacing, deleting and counting points."""

from dataclasses import replace

import numpy as np
import pytest
from qdrant_client import grpc as q

from services.common.errors import InvalidRequest, Reason
from services.domain.blocks import DocumentMetadata
from services.domain.filters import Equals, Exists
from services.domain.ids import DocVersionId
from services.index.connection import Deadline, IndexConnection
from services.index.payload import embed_hash
from services.index.schema import IndexSchemas
from services.index.writer import IndexWriter
from tests.contract.index.builders import TIMEOUT_S, World, dense_of, point_of, schema_of, sparse_of


async def test_write_when_repeated_then_the_points_are_replaced_not_doubled(world: World) -> None:
    document = world.document()
    await world.write(document, "first draft", "same")
    await world.write(document, "second draft", "same")
    assert await world.count() == 2
    assert await world.keyword("first") == []
    assert [hit.ordinal for hit in await world.keyword("second")] == [0]


async def test_write_when_a_new_version_replaces_the_old_then_only_the_switch_decides_what_is_seen(
    world: World,
) -> None:
    old = await world.write(world.document(), "old apple")
    new = await world.write(world.document(document_id=old.document_id), "new apple")
    before = await world.keyword("apple", hidden_doc_versions=(new.doc_version,))
    after = await world.keyword("apple", hidden_doc_versions=(old.doc_version,))
    assert ([hit.doc_version for hit in before], [hit.doc_version for hit in after]) == (
        [old.doc_version],
        [new.doc_version],
    )


async def test_write_when_many_points_then_all_are_there_and_deleting_removes_all(world: World) -> None:
    keep = await world.write(world.document(), "kept")
    many = await world.write(world.document(), *(f"many m{i}" for i in range(1_201)))
    counts = await world.writer.doc_versions(world.schema, world.kb_id, timeout_s=TIMEOUT_S)
    assert counts == {keep.doc_version: 1, many.doc_version: 1_201}
    await world.writer.delete_versions(world.schema, world.kb_id, [many.doc_version], timeout_s=TIMEOUT_S)
    assert await world.count() == 1
    assert [hit.doc_version for hit in await world.keyword("kept many")] == [keep.doc_version]


async def test_delete_when_another_knowledge_base_names_the_version_then_nothing_happens(world: World) -> None:
    document = await world.write(world.document(), "mine")
    other = world.neighbour().kb_id
    await world.writer.delete_versions(world.schema, other, [document.doc_version], timeout_s=TIMEOUT_S)
    await world.writer.delete_versions(world.schema, world.kb_id, [], timeout_s=TIMEOUT_S)
    assert await world.count() == 1


async def test_delete_knowledge_base_when_done_then_the_neighbour_keeps_everything(world: World) -> None:
    neighbour = world.neighbour()
    await world.write(world.document(), "a", "b")
    await neighbour.write(neighbour.document(), "a")
    await world.writer.delete_knowledge_base(world.schema, world.kb_id, timeout_s=TIMEOUT_S)
    assert (await world.count(), await neighbour.count()) == (0, 1)
    known = await world.writer.knowledge_bases(world.schema, timeout_s=TIMEOUT_S)
    assert (world.kb_id in known, known[neighbour.kb_id]) == (False, 1)


async def test_delete_index_version_when_done_then_the_other_version_stays(world: World) -> None:
    rebuilt = world.neighbour()
    rebuilt.kb_id = world.kb_id
    document = await world.write(world.document(), "a", "b")
    await rebuilt.write(replace(document, index_version=rebuilt.index_version), "a", "b")
    await world.writer.delete_index_version(world.schema, world.kb_id, world.index_version, timeout_s=TIMEOUT_S)
    assert await world.count() == 2
    assert await world.count(index_version=world.index_version) == 0
    assert await world.count(doc_version=document.doc_version) == 2


async def test_deletes_and_counts_when_the_collection_is_missing_then_there_is_nothing_to_do(world: World) -> None:
    world.schema = schema_of("never/written")
    await world.writer.delete_versions(world.schema, world.kb_id, [DocVersionId(1)], timeout_s=TIMEOUT_S)
    await world.writer.delete_knowledge_base(world.schema, world.kb_id, timeout_s=TIMEOUT_S)
    assert await world.count() == 0
    assert await world.writer.doc_versions(world.schema, world.kb_id, timeout_s=TIMEOUT_S) == {}
    assert await world.writer.vectors_by_hash(world.schema, world.kb_id, ["x"], timeout_s=TIMEOUT_S) == {}


async def test_set_metadata_when_changed_then_filters_see_the_new_and_nothing_of_the_old(world: World) -> None:
    old = DocumentMetadata(title="Old title", tags=("red",), labels={"n": 1, "k": "v"})
    document = await world.write(world.document("a.txt", old, page_count=3), *(f"t{i}" for i in range(250)))
    changed = replace(document, name="b.txt", page_count=None, metadata=DocumentMetadata(labels={"n": 2}))
    await world.writer.set_metadata(world.schema, changed, timeout_s=TIMEOUT_S)
    gone = ("title", "tags", "page_count", "labels.k")
    assert [await world.names_matching(Exists(field=field), [changed]) for field in gone] == [set()] * 4
    assert await world.names_matching(Equals(field="labels.n", value=1), [changed]) == set()
    hits = await world.search(
        dense=(dense_of("t1"),),
        limit=1_000,
        filters=(Equals(field="name", value="b.txt"), Equals(field="labels.n", value=2)),
    )
    assert len(hits[0]) == 250
    assert [hit.ordinal for hit in await world.keyword("t1")] == [1]


async def test_update_sparse_when_weights_change_then_scores_do_and_the_rest_stays(world: World) -> None:
    document = await world.write(world.document(), "apple", "apple pie")
    before = await world.keyword("apple")
    doubled = {i: replace(sparse_of("apple"), values=np.full(1, 2.0, np.float32)) for i in (0, 1)}
    await world.writer.update_sparse(
        world.schema, world.index_version, document.doc_version, doubled, timeout_s=TIMEOUT_S
    )
    after = await world.keyword("apple")
    assert [hit.score for hit in after] == pytest.approx([2 * hit.score for hit in before], rel=1e-5)
    assert await world.keyword("pie") == []
    assert (await world.search(dense=(dense_of("apple pie"),)))[0][0].ordinal == 1


async def test_vectors_by_hash_when_texts_were_embedded_before_then_their_vectors_and_no_others(world: World) -> None:
    await world.write(world.document(), *(f"t{i}" for i in range(300)))
    hashes = {f"t{i}": embed_hash(point_of(0, f"t{i}").chunk.embedding_text) for i in range(300)}
    wanted = [*hashes.values(), embed_hash("never embedded")]
    found = await world.writer.vectors_by_hash(world.schema, world.kb_id, wanted, timeout_s=TIMEOUT_S)
    assert set(found) == set(hashes.values())
    expected = dense_of("t7") / np.linalg.norm(dense_of("t7"))
    np.testing.assert_allclose(found[hashes["t7"]], expected, atol=1e-6)
    other = world.neighbour().kb_id
    assert await world.writer.vectors_by_hash(world.schema, other, wanted, timeout_s=TIMEOUT_S) == {}


async def test_write_when_a_vector_has_another_dimension_then_dimension_mismatch_and_nothing_written(
    world: World,
) -> None:
    points = [point_of(0, "good"), point_of(1, "bad", dimensions=5)]
    with pytest.raises(InvalidRequest) as caught:
        await world.writer.write(world.schema, world.document(), points, timeout_s=TIMEOUT_S)
    assert caught.value.error_reason is Reason.DIMENSION_MISMATCH
    assert await world.count() == 0


async def test_write_when_a_vector_is_not_finite_then_it_is_refused(world: World) -> None:
    bad = replace(point_of(0, "x"), dense=np.full(8, np.nan, np.float32))
    with pytest.raises(InvalidRequest):
        await world.writer.write(world.schema, world.document(), [bad], timeout_s=TIMEOUT_S)
    labels = world.document(metadata=DocumentMetadata(labels={"n": float("inf")}))
    with pytest.raises(InvalidRequest):
        await world.write(labels, "x")
    assert await world.count() == 0


async def test_write_when_the_collection_there_has_another_dimension_then_it_is_refused(
    world: World, connection: IndexConnection
) -> None:
    schema = schema_of(f"{world.schema.model}/other", 6)
    request = q.CreateCollection(
        collection_name=schema.collection,
        vectors_config=q.VectorsConfig(
            params_map=q.VectorParamsMap(map={"dense": q.VectorParams(size=4, distance=q.Distance.Cosine)})
        ),
    )
    await connection.collections("Create", request, Deadline(TIMEOUT_S))
    with pytest.raises(InvalidRequest) as caught:
        await IndexWriter(connection).write(schema, world.document(), [point_of(0, "x", 6)], timeout_s=TIMEOUT_S)
    assert caught.value.error_reason is Reason.DIMENSION_MISMATCH
    await IndexSchemas(connection).drop(schema, timeout_s=TIMEOUT_S)


async def test_ensure_when_repeated_and_after_a_drop_then_the_collection_is_there(
    world: World, connection: IndexConnection
) -> None:
    schema = schema_of(f"{world.schema.model}/dropped")
    first, second = IndexSchemas(connection), IndexSchemas(connection)
    for schemas in (first, first, second):
        await schemas.ensure(schema, timeout_s=TIMEOUT_S)
    await first.drop(schema, timeout_s=TIMEOUT_S)
    await first.drop(schema, timeout_s=TIMEOUT_S)
    await first.ensure(schema, timeout_s=TIMEOUT_S)
    assert await IndexWriter(connection).knowledge_bases(schema, timeout_s=TIMEOUT_S) == {}
    await first.drop(schema, timeout_s=TIMEOUT_S)
