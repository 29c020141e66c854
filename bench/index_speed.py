"""Speed of the vector index: a batch query through the engine process against the same query in process, and how long
queries wait while points are uploaded.

    python -m bench.index_speed [--points 100000] [--upload 10000] [--out index_speed.json]

Points of 384 dimensions with BM25 vectors, four knowledge bases in one collection (scope 25 %). The query is what
hybrid search sends: one dense and one sparse list of 150 each, with the IDF of the knowledge base. In process it runs
twice: finding ids alone, and reading the payload that says which chunk each point is (what the reader's cache saves).
JSON on stdout.
"""

import argparse
import asyncio
import hashlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import qdrant_edge as edge

from services.domain.blocks import DocumentMetadata
from services.domain.chunks import Chunk
from services.domain.ids import DocumentId, DocVersionId, IndexVersionId, KnowledgeBaseId
from services.engine.supervisor import EngineSupervisor
from services.index.connection import IndexConnection
from services.index.payload import scope_term
from services.index.reader import IndexReader
from services.index.schema import CollectionSchema
from services.index.types import IndexedDocument, IndexQuery, PointWrite, SparseVector
from services.index.writer import IndexWriter

DIMENSIONS = 384
KNOWLEDGE_BASES = 4
TERMS = 60
VOCABULARY = 30_000
DOCUMENT_CHUNKS = 50
SCHEMA = CollectionSchema(model="bench", dimensions=DIMENSIONS, tokenizer_version="1")
_rng = np.random.default_rng(7)


def _sparse(terms: int) -> SparseVector:
    indices = np.unique(_rng.zipf(1.3, terms) % VOCABULARY).astype(np.uint32)
    return SparseVector(indices=indices, values=_rng.uniform(0.5, 2.0, len(indices)).astype(np.float32))


def _point(document: int, ordinal: int) -> PointWrite:
    text = f"chunk {ordinal} of document {document} " + "lorem ipsum " * 100
    chunk = Chunk(
        ordinal=ordinal,
        text=text,
        prefix="",
        section=("One", "Two"),
        first_page=1,
        last_page=1,
        boxes=(),
        start=0,
        end=len(text),
        word_count=200,
        token_count=300,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
    )
    return PointWrite(chunk=chunk, dense=_rng.standard_normal(DIMENSIONS).astype(np.float32), sparse=_sparse(TERMS))


def _document(number: int) -> IndexedDocument:
    metadata = DocumentMetadata(
        title=f"A title of document {number}",
        author=f"Author {number % 50}",
        tags=("one", "two"),
        labels={"n": number, "team": f"t{number % 7}"},
    )
    return IndexedDocument(
        kb_id=KnowledgeBaseId(f"kb_{number % KNOWLEDGE_BASES}"),
        index_version=IndexVersionId(1),
        page_count=3,
        document_id=DocumentId(f"doc_{number}"),
        doc_version=DocVersionId(number),
        name=f"file {number}.pdf",
        metadata=metadata,
    )


async def _upload(writer: IndexWriter, first: int, points: int) -> float:
    busy = 0.0
    for number in range(first, first + points // DOCUMENT_CHUNKS):
        made = [_point(number, ordinal) for ordinal in range(DOCUMENT_CHUNKS)]
        begin = time.perf_counter()
        await writer.write(SCHEMA, _document(number), made, timeout_s=60)
        busy += time.perf_counter() - begin
    return points / busy


def _query() -> IndexQuery:
    return IndexQuery(
        schema=SCHEMA,
        kb_id=KnowledgeBaseId("kb_1"),
        index_version=IndexVersionId(1),
        hidden_doc_versions=(DocVersionId(5),),
        dense=(_rng.standard_normal(DIMENSIONS).astype(np.float32),),
        sparse=(_sparse(6),),
    )


def _edge_batch(query: IndexQuery, *, with_payload: bool) -> edge.QueryBatchRequest:
    scope = edge.FieldCondition("scope", match=edge.MatchValue(scope_term(query.kb_id, query.index_version)))
    hidden = edge.FieldCondition("doc_version", match=edge.MatchAny(list(query.hidden_doc_versions)))
    bounds = edge.Filter(must=[scope], must_not=[hidden])
    idf = edge.SearchParams(idf=edge.IdfParams(corpus=edge.Filter(must=[scope])))
    sparse = edge.SparseVector(query.sparse[0].indices.tolist(), query.sparse[0].values.tolist())
    slim = edge.PayloadSelector.Include(["hit"]) if with_payload else False
    rankings = [
        (edge.Query.Nearest(query.dense[0].tolist(), using="dense"), None),
        (edge.Query.Nearest(sparse, using="bm25"), idf),
    ]
    return edge.QueryBatchRequest(
        [edge.QueryRequest(150, query=q, filter=bounds, with_payload=slim, params=params) for q, params in rankings]
    )


def _summary(times_s: list[float]) -> dict[str, float]:
    ordered = sorted(times_s)
    return {
        "p50_ms": round(statistics.median(ordered) * 1e3, 2),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1e3, 2),
        "max_ms": round(ordered[-1] * 1e3, 2),
        "n": len(ordered),
    }


async def _time_queries(reader: IndexReader, count: int) -> list[float]:
    times = []
    for _ in range(count):
        query = _query()
        started = time.perf_counter()
        await reader.search(query, timeout_s=10)
        times.append(time.perf_counter() - started)
    return times


def _time_in_process(shard: edge.EdgeShard, count: int, *, with_payload: bool) -> list[float]:
    times: list[float] = []
    for _ in range(count):
        request = _edge_batch(_query(), with_payload=with_payload)
        started = time.perf_counter()
        shard.query_batch(request)
        times.append(time.perf_counter() - started)
    return times


async def _queries_during_upload(target: str, first: int, points: int) -> tuple[list[float], float]:
    """Query every 5 ms from here while a child process uploads, so that its own work does not blur the delay."""
    command = ["-m", "bench.index_speed", "--child-upload", target, str(first), str(points)]
    child = await asyncio.create_subprocess_exec(sys.executable, *command)
    connection = IndexConnection(target)
    reader, times, started = IndexReader(connection), [], time.perf_counter()
    while child.returncode is None:
        times += await _time_queries(reader, 1)
        await asyncio.sleep(0.005)
    await connection.aclose()
    assert child.returncode == 0
    return times, time.perf_counter() - started


async def _child_upload(target: str, first: int, points: int) -> None:
    connection = IndexConnection(target)
    writer = IndexWriter(connection)
    made = [_point(first, ordinal) for ordinal in range(points)]
    await writer.write(SCHEMA, _document(first), made, timeout_s=300)
    await connection.aclose()


async def _bench(points: int, upload: int, repeat: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        supervisor = EngineSupervisor(Path(folder))
        await supervisor.start()
        connection = IndexConnection(supervisor.target)
        reader, writer = IndexReader(connection), IndexWriter(connection)
        rate = await _upload(writer, 0, points)
        cold = _summary(await _time_queries(reader, 20))
        await _time_queries(reader, repeat)
        through = _summary(await _time_queries(reader, repeat))
        during, seconds = await _queries_during_upload(supervisor.target, 10_000_000, upload)
        await connection.aclose()
        await supervisor.aclose()
        shard = edge.EdgeShard.load(str(Path(folder) / SCHEMA.collection / "shard"))
        bare = _time_in_process(shard, repeat, with_payload=False)
        payload = _time_in_process(shard, repeat, with_payload=True)
        shard.close()
    return {
        "points": points,
        "dimensions": DIMENSIONS,
        "scope": 1 / KNOWLEDGE_BASES,
        "upload_points_per_s": round(rate),
        "query_through_engine_first_20": cold,
        "query_through_engine": through,
        "query_in_process_ids_only": _summary(bare),
        "query_in_process_with_payload": _summary(payload),
        "query_during_upload": _summary(during) | {"uploaded": upload, "seconds": round(seconds, 2)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--upload", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=300)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child-upload", nargs=3, metavar=("TARGET", "FIRST", "POINTS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child_upload:
        target, first, points = arguments.child_upload
        asyncio.run(_child_upload(target, int(first), int(points)))
        return
    report = json.dumps(asyncio.run(_bench(arguments.points, arguments.upload, arguments.repeat)), indent=1)
    print(report)
    if arguments.out:
        arguments.out.write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
