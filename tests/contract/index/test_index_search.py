"""Scope, statistics and bounds of a search."""

import numpy as np
import pytest

from services.common.errors import InvalidRequest, Reason
from services.domain.filters import Equals
from services.domain.ids import DocVersionId, IndexVersionId, KnowledgeBaseId
from services.index.connection import CollectionMissing
from services.index.types import SparseVector
from tests.contract.index.builders import TIMEOUT_S, World, dense_of, schema_of, sparse_of


async def test_search_when_several_vectors_then_one_ranked_list_each_in_order(world: World) -> None:
    document = await world.write(world.document(), "red apple", "green apple", "blue sky")
    lists = await world.search(
        dense=(dense_of("green apple"), dense_of("blue sky")), sparse=(sparse_of("red"), sparse_of("apple"))
    )
    assert [len(hits) for hits in lists] == [3, 3, 1, 2]
    assert [hits[0].ordinal for hits in lists[:3]] == [1, 2, 0]
    assert lists[0][0].score == pytest.approx(1.0, abs=1e-5)
    assert all(hits == sorted(hits, key=lambda hit: -hit.score) for hits in lists)
    assert {(hit.document_id, hit.doc_version) for hits in lists for hit in hits} == {
        (document.document_id, document.doc_version)
    }


async def test_search_when_no_vectors_then_no_lists(world: World) -> None:
    await world.write(world.document(), "red")
    assert await world.search() == []


async def test_search_when_limited_then_no_more_hits_than_that(world: World) -> None:
    await world.write(world.document(), *(f"word w{i}" for i in range(9)))
    lists = await world.search(dense=(dense_of("x"),), sparse=(sparse_of("word"),), limit=4)
    assert [len(hits) for hits in lists] == [4, 4]


async def test_search_when_a_scope_is_given_then_every_list_obeys_every_bound(world: World) -> None:
    wanted = await world.write(world.document("wanted"), "apple pie")
    hidden = await world.write(world.document("wanted"), "apple pie")
    await world.write(world.document("other"), "apple pie")
    neighbour = world.neighbour()
    await neighbour.write(neighbour.document("wanted"), "apple pie")
    rebuilt = world.neighbour()
    rebuilt.kb_id = world.kb_id
    await rebuilt.write(rebuilt.document("wanted"), "apple pie")

    lists = await world.search(
        dense=(dense_of("apple pie"), dense_of("x")),
        sparse=(sparse_of("apple"), sparse_of("pie")),
        filters=(Equals(field="name", value="wanted"),),
        hidden_doc_versions=(hidden.doc_version, DocVersionId(10**12)),
    )
    assert [[hit.doc_version for hit in hits] for hits in lists] == [[wanted.doc_version]] * 4


async def test_search_when_a_neighbour_fills_the_collection_then_bm25_scores_stay(world: World) -> None:
    await world.write(world.document(), "rare common", "common", "common words")
    before = await world.keyword("rare common")
    neighbour = world.neighbour()
    await neighbour.write(neighbour.document(), *(f"rare filler f{i}" for i in range(60)))
    after = await world.keyword("rare common")
    assert [(hit.ordinal, hit.score) for hit in after] == [
        (hit.ordinal, pytest.approx(hit.score, rel=1e-6)) for hit in before
    ]
    assert len(before) == 3


async def test_search_when_versions_are_deleted_then_bm25_scores_are_as_if_never_written(world: World) -> None:
    await world.write(world.document(), "rare common", "common", "common words")
    before = await world.keyword("rare")
    gone = await world.write(world.document(), *(f"rare gone g{i}" for i in range(30)))
    assert (await world.keyword("rare"))[0].score < before[0].score
    await world.writer.delete_versions(world.schema, world.kb_id, [gone.doc_version], timeout_s=TIMEOUT_S)
    after = await world.keyword("rare")
    assert [hit.score for hit in after] == pytest.approx([hit.score for hit in before], rel=1e-6)


async def test_search_when_no_term_is_shared_then_sparse_finds_nothing(world: World) -> None:
    await world.write(world.document(), "red apple")
    empty = SparseVector(indices=np.array([], np.uint32), values=np.array([], np.float32))
    zero = SparseVector(indices=sparse_of("red").indices, values=np.zeros(1, np.float32))
    assert await world.search(sparse=(sparse_of("unrelated words"), empty, zero)) == [[], [], []]


async def test_search_when_a_query_vector_has_another_dimension_then_dimension_mismatch(world: World) -> None:
    await world.write(world.document(), "red")
    with pytest.raises(InvalidRequest) as caught:
        await world.search(dense=(dense_of("red", 5),))
    assert caught.value.error_reason is Reason.DIMENSION_MISMATCH


async def test_search_when_nothing_was_ever_written_then_collection_missing(world: World) -> None:
    world.schema = schema_of("never/written")
    with pytest.raises(CollectionMissing) as caught:
        await world.keyword("red")
    assert caught.value.error_reason is Reason.INDEX_UNAVAILABLE


@pytest.mark.parametrize("kb_id", ["", "kb_x' OR 1=1"])
async def test_search_when_the_knowledge_base_is_odd_then_nothing_of_others(world: World, kb_id: str) -> None:
    await world.write(world.document(), "red")
    world.kb_id = KnowledgeBaseId(kb_id)
    if kb_id:
        assert await world.keyword("red") == []
    else:
        with pytest.raises(InvalidRequest):
            await world.keyword("red")


async def test_fetch_when_asked_for_found_points_then_the_passages_as_written(world: World) -> None:
    document = await world.write(world.document(), "red apple", "Zeile 1\nZeile 2 ✓")
    hits = await world.keyword("apple") + await world.keyword("✓")
    passages = await world.reader.fetch(world.schema, world.kb_id, [hit.point_id for hit in hits], timeout_s=TIMEOUT_S)
    second = passages[hits[1].point_id]
    assert [passages[hit.point_id].text for hit in hits] == ["red apple", "Zeile 1\nZeile 2 ✓"]
    assert (second.section, second.first_page, second.last_page) == (("Handbook", "Travel"), 2, None)
    assert (second.start, second.end, second.word_count, second.token_count) == (100, 117, 5, 7)
    assert (second.boxes[0].page, second.boxes[0].x1, second.boxes[0].y1) == (1, 100.0, 20.25)
    assert second.embedding_text == "Handbook > Travel\nZeile 1\nZeile 2 ✓"
    assert (second.document_id, second.doc_version) == (document.document_id, document.doc_version)
    assert second.content_hash == hits[1].content_hash


async def test_fetch_when_the_point_is_a_neighbours_or_gone_then_it_is_missing(world: World) -> None:
    await world.write(world.document(), "red")
    found = (await world.keyword("red"))[0].point_id
    other = world.neighbour().kb_id
    assert await world.reader.fetch(world.schema, other, [found], timeout_s=TIMEOUT_S) == {}
    absent = "00000000-0000-0000-0000-000000000000"
    assert list(await world.reader.fetch(world.schema, world.kb_id, [absent, found], timeout_s=TIMEOUT_S)) == [found]


async def test_neighbours_when_the_range_passes_the_ends_then_what_there_is_in_order(world: World) -> None:
    document = await world.write(world.document(), "a", "b", "c", "d")
    passages = await world.reader.neighbours(
        world.schema,
        world.kb_id,
        index_version=world.index_version,
        doc_version=document.doc_version,
        first_ordinal=-3,
        last_ordinal=2,
        timeout_s=TIMEOUT_S,
    )
    assert [passage.text for passage in passages] == ["a", "b", "c"]


async def test_passages_when_there_are_several_pages_then_every_one_once(world: World) -> None:
    document = await world.write(world.document(), *(f"t{i}" for i in range(450)))
    texts = [
        passage.text
        async for passage in world.reader.passages(
            world.schema,
            world.kb_id,
            index_version=IndexVersionId(world.index_version),
            doc_version=document.doc_version,
            timeout_s=TIMEOUT_S,
        )
    ]
    assert sorted(texts) == sorted(f"t{i}" for i in range(450))
