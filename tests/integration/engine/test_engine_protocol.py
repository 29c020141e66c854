"""Qdrant's protocol as the ordinary qdrant-client speaks it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from qdrant_client import AsyncQdrantClient, models
from qdrant_client import grpc as q

from tests.contract.index.engine import running_engine
from tests.integration.engine.conftest import client_of, make_collection, point


def _equals(key: str, value: Any) -> models.Filter:
    return models.Filter(must=[models.FieldCondition(key=key, match=models.MatchValue(value=value))])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_engine(tmp_path_factory.mktemp("engine")) as target:
        yield target


@pytest.fixture
async def client(target: str) -> AsyncIterator[AsyncQdrantClient]:
    """A client of an engine without collections."""
    client = client_of(target)
    for collection in (await client.get_collections()).collections:
        await client.delete_collection(collection.name)
    yield client
    await client.close()


@pytest.fixture
async def filled(client: AsyncQdrantClient) -> AsyncQdrantClient:
    await make_collection(client)
    await client.create_payload_index(
        "c", "kb", models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    )
    await client.create_payload_index("c", "n", models.PayloadSchemaType.INTEGER)
    await client.upsert(
        "c", [point(i, kb="a" if i % 2 else "b", deep={"x": [1, None, True, 1.5, "s"]}) for i in range(250)]
    )
    return client


async def test_collections_when_made_and_removed_then_listed_and_described(client: AsyncQdrantClient) -> None:
    await make_collection(client, "one")
    await make_collection(client, "two")
    await client.create_payload_index("one", "n", models.PayloadSchemaType.INTEGER)
    info = await client.get_collection("one")
    assert info.config.params.vectors["dense"].size == 4  # type: ignore[index]
    assert info.config.params.sparse_vectors["bm25"].modifier == models.Modifier.IDF  # type: ignore[index]
    assert list(info.payload_schema) == ["n"]
    await client.delete_payload_index("one", "n")
    assert (await client.get_collection("one")).payload_schema == {}
    assert await client.delete_collection("two") and not await client.delete_collection("two")
    assert [c.name for c in (await client.get_collections()).collections] == ["one"]
    assert (await client.collection_exists("one"), await client.collection_exists("two")) == (True, False)


async def test_query_when_dense_sparse_and_fused_then_ranked_as_defined(filled: AsyncQdrantClient) -> None:
    scope = _equals("kb", "a")
    dense = models.Prefetch(query=[1.0, 3.0, 0.0, 0.0], using="dense", filter=scope, limit=20)
    sparse = models.Prefetch(
        query=models.SparseVector(indices=[15], values=[1.0]),
        using="bm25",
        filter=scope,
        params=models.SearchParams(idf=models.IdfCorpusParams(corpus=scope)),
    )
    fusion = models.RrfQuery(rrf=models.Rrf(k=60, weights=[1.0, 3.0]))
    fused = (
        await filled.query_points(
            "c", prefetch=[dense, sparse], query=fusion, query_filter=scope, limit=3, with_payload=["n"]
        )
    ).points
    assert [p.payload for p in fused[:2]] == [{"n": 5}, {"n": 3}]
    alone = (
        await filled.query_points("c", query=[1.0, 3.0, 0.0, 0.0], using="dense", limit=2, with_vectors=True)
    ).points
    assert alone[0].id == 3 and alone[0].score == pytest.approx(1.0) and alone[0].payload is not None
    assert set(alone[0].vector) == {"dense", "bm25"}  # type: ignore[arg-type]
    strict = await filled.query_points("c", query=[1.0, 3.0, 0.0, 0.0], using="dense", score_threshold=0.9999)
    assert [p.id for p in strict.points] == [3]


async def test_query_batch_when_several_then_answered_in_order(filled: AsyncQdrantClient) -> None:
    requests = [models.QueryRequest(query=[1.0, float(i), 0.0, 0.0], using="dense", limit=1) for i in (7, 2)]
    assert [reply.points[0].id for reply in await filled.query_batch_points("c", requests)] == [7, 2]


async def test_reads_when_paged_counted_and_faceted_then_complete(filled: AsyncQdrantClient) -> None:
    seen: list[Any] = []
    offset = None
    while True:
        page, offset = await filled.scroll("c", scroll_filter=_equals("kb", "a"), limit=30, offset=offset)
        seen += [record.id for record in page]
        if offset is None:
            break
    assert sorted(seen) == list(range(1, 250, 2))
    assert (await filled.count("c", count_filter=_equals("kb", "b"))).count == 125
    assert {hit.value: hit.count for hit in (await filled.facet("c", "kb", exact=True)).hits} == {"a": 125, "b": 125}
    ordered, _ = await filled.scroll("c", limit=2, order_by=models.OrderBy(key="n", direction=models.Direction.DESC))
    assert [record.id for record in ordered] == [249, 248]
    records = await filled.retrieve("c", [5, 9_999], with_payload=["deep"])
    assert [record.payload for record in records] == [{"deep": {"x": [1, None, True, 1.5, "s"]}}]


async def test_updates_when_by_id_and_by_filter_then_applied_to_those_alone(filled: AsyncQdrantClient) -> None:
    await filled.set_payload("c", {"kb": "z", "new": 1}, points=[1, 3])
    await filled.set_payload("c", {"new": 2}, points=_equals("kb", "b"))
    await filled.overwrite_payload("c", {"only": True}, points=[5])
    await filled.delete_payload("c", ["deep"], points=[7])
    await filled.update_vectors("c", [models.PointVectors(id=9, vector={"dense": [0.0, 0.0, 1.0, 0.0]})])
    by_id = {record.id: record.payload for record in await filled.retrieve("c", [1, 2, 5, 7], with_payload=True)}
    assert (by_id[1]["kb"], by_id[1]["new"], by_id[2]["new"]) == ("z", 1, 2)  # type: ignore[index]
    assert by_id[5] == {"only": True}
    assert by_id[7] == {"n": 7, "kb": "a"}
    nearest = await filled.query_points("c", query=[0.0, 0.0, 1.0, 0.0], using="dense", limit=1)
    assert nearest.points[0].id == 9
    await filled.delete("c", points_selector=[1, 123_456])
    await filled.delete("c", points_selector=models.FilterSelector(filter=_equals("kb", "b")))
    assert (await filled.count("c")).count == 124


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda c: c.query_points("none", query=[1.0]), grpc.StatusCode.NOT_FOUND),
        (lambda c: c.upsert("none", [point(1)]), grpc.StatusCode.NOT_FOUND),
        (lambda c: c.query_points("c", query=[1.0], using="dense"), grpc.StatusCode.INVALID_ARGUMENT),
        (lambda c: c.query_points("c", query=[1.0] * 4, using="nope"), grpc.StatusCode.INVALID_ARGUMENT),
        (lambda c: c.query_points("c", query=[1.0] * 4, using="dense", limit=0), grpc.StatusCode.INVALID_ARGUMENT),
        (lambda c: c.query_points("c", query=[float("nan")] * 4, using="dense"), grpc.StatusCode.INVALID_ARGUMENT),
        (lambda c: c.query_points("c", query=5, using="dense"), grpc.StatusCode.UNIMPLEMENTED),
        (lambda c: c.facet("c", "unindexed"), grpc.StatusCode.INVALID_ARGUMENT),
        (lambda c: c.count("c", count_filter=_equals("kb", True)), grpc.StatusCode.UNIMPLEMENTED),
        (lambda c: make_collection(c, "c"), grpc.StatusCode.ALREADY_EXISTS),
        (lambda c: make_collection(c, "../up"), grpc.StatusCode.INVALID_ARGUMENT),
        (lambda c: c.create_collection("x", vectors_config={}), grpc.StatusCode.INVALID_ARGUMENT),
        (lambda c: c.set_payload("c", {"a": 1}, points=[404_404]), grpc.StatusCode.NOT_FOUND),
        (lambda c: c.clear_payload("c", points_selector=[1]), grpc.StatusCode.UNIMPLEMENTED),
    ],
)  # fmt: skip
async def test_call_when_it_is_wrong_then_the_status_of_a_qdrant_server_and_no_traceback(
    filled: AsyncQdrantClient, call: Any, code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(filled)
    assert caught.value.code() is code
    assert "Traceback" not in (caught.value.details() or "") and ".py" not in (caught.value.details() or "")
    assert (await filled.count("c")).count == 250


async def test_upsert_when_the_last_of_many_points_is_bad_then_nothing_is_written(filled: AsyncQdrantClient) -> None:
    bad = [
        models.PointStruct(id=9_001, vector={"dense": [1.0] * 5}),
        models.PointStruct(id=9_001, vector={"dense": [float("inf")] * 4}),
        models.PointStruct(id=9_001, vector={"bm25": models.SparseVector(indices=[1, 1], values=[1.0, 1.0])}),
        models.PointStruct(id=9_001, vector={"other": [1.0]}),
        models.PointStruct(id="not-a-uuid", vector={"dense": [1.0] * 4}),
    ]
    for last in bad:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await filled.upsert("c", [*(point(i) for i in range(1_000, 1_300)), last])
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await filled.count("c")).count == 250


async def test_filter_when_nested_without_end_then_refused(filled: AsyncQdrantClient) -> None:
    nested = q.Filter()
    for _ in range(40):
        nested = q.Filter(must=[q.Condition(filter=nested)])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await filled.grpc_points.Count(q.CountPoints(collection_name="c", filter=nested))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
