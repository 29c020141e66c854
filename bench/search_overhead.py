"""What a search costs beside embedding the query and asking the engine, and how long searches wait during an upload.

    python -m bench.search_overhead [--chunks 100000] [--upload 10000] [--repeat 200] [--data FOLDER] [--out FILE]

Four knowledge bases in one collection, made through the catalogue and the index writer; every search is of one of them
(25 %), without reranking. Dense vectors are clustered, texts are about 1 kB of words with natural frequencies, and each
query is new, so that no cache of query vectors helps. The server is `pergamon up` in a process of its own, the engine
another, this is the client. In one run, taking turns: the Embed call alone, the index reader's query with these vectors
alone, the Search call. Overhead is the third less the first two. `--data` keeps the filled folder for another run.

Needs the model all-minilm-l6-v2 (pulled when missing). JSON on stdout.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pergamon.client import AsyncClient

from services.catalog.catalog import Catalog, open_catalog
from services.catalog.job_types import JobKind
from services.catalog.settings import CatalogSettings
from services.catalog.types import KnowledgeBase, KnowledgeBaseSpec, OnDuplicate, UploadSpec, VersionStats
from services.domain.chunks import Chunk
from services.domain.ids import DocVersionId, IndexVersionId, KnowledgeBaseId, TenantId
from services.embedder.bm25 import TOKENIZER_VERSION, Bm25Encoder
from services.engine.supervisor import EngineSupervisor
from services.index.connection import IndexConnection
from services.index.reader import IndexReader
from services.index.schema import CollectionSchema
from services.index.types import IndexedDocument, IndexQuery, PointWrite, SparseVector
from services.index.writer import IndexWriter
from services.launch.all_in_one import AllInOne, sqlite_url
from services.launch.settings import UpSettings
from services.retriever.client_embedder import ClientEmbedder
from services.retriever.types import EmbeddingNeed

MODEL, DIMENSIONS = "all-minilm-l6-v2", 384
KNOWLEDGE_BASES, DOCUMENT_CHUNKS = 4, 250
VOCABULARY, CHUNK_WORDS, QUERY_WORDS, CLUSTERS = 30_000, 170, 7, 200
TENANT = TenantId("default")
SCHEMA = CollectionSchema(model=MODEL, dimensions=DIMENSIONS, tokenizer_version=TOKENIZER_VERSION)
NEED = EmbeddingNeed(dense_model=MODEL, sparse_model="bm25", tokenizer_version=TOKENIZER_VERSION, language="en")
_SERVES, _WRITES = "serves on ", "writes"
HEALTH_INTERVAL_S, SEARCH_INTERVAL_S = 0.01, 0.01


class Words:
    """Texts of made-up words with natural frequencies (Zipf-Mandelbrot), and their BM25 vectors."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        fixed = np.random.default_rng(1)
        syllables = [a + b for a in "bdfgklmnprtvz" for b in "aeiou"]
        self.words = ["".join(fixed.choice(syllables, 3)) + f"{n % 97}" for n in range(VOCABULARY)]
        chances = 1 / (np.arange(VOCABULARY) + 2.7)
        self._chances = chances / chances.sum()
        self._clusters = fixed.standard_normal((CLUSTERS, DIMENSIONS))
        encoder = Bm25Encoder()
        # What no term belongs to (a stop word of the analysis) is left out of the vectors.
        self._terms = [encoder.query_vector(word, language="en").indices[:1] for word in self.words]

    def draw(self, count: int) -> np.ndarray:
        return self.rng.choice(VOCABULARY, count, p=self._chances)

    def query(self) -> str:
        """Rarer words than a text's: people do not ask for what stands everywhere."""
        drawn = self.draw(50)
        return " ".join(self.words[n] for n in drawn[drawn > 50][:QUERY_WORDS])

    def point(self, ordinal: int) -> PointWrite:
        drawn = self.draw(CHUNK_WORDS)
        text = " ".join(self.words[n] for n in drawn)
        kinds, counts = np.unique(drawn, return_counts=True)
        weights = {
            int(t): float(c * 2.2 / (c + 1.2)) for k, c in zip(kinds, counts, strict=True) for t in self._terms[k]
        }
        sparse = SparseVector(
            indices=np.array(list(weights), dtype=np.uint32), values=np.array(list(weights.values()), dtype=np.float32)
        )
        near = self._clusters[self.rng.integers(CLUSTERS)]
        dense = near + 0.7 * self.rng.standard_normal(DIMENSIONS)
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
            word_count=CHUNK_WORDS,
            token_count=CHUNK_WORDS,
            content_hash=hashlib.sha256(text.encode()).hexdigest(),
        )
        return PointWrite(chunk=chunk, dense=(dense / np.linalg.norm(dense)).astype(np.float32), sparse=sparse)


async def fill(folder: Path, target: str, chunks: int) -> None:
    """The knowledge bases and their live documents, as an ingestor leaves them."""
    words, connection = Words(seed=2), IndexConnection(target)
    writer = IndexWriter(connection)
    async with open_catalog(CatalogSettings(url=sqlite_url(folder))) as catalog:
        bases = [await _make_base(catalog, number) for number in range(KNOWLEDGE_BASES)]
        for number in range(chunks // DOCUMENT_CHUNKS):
            kb = bases[number % KNOWLEDGE_BASES]
            await _make_document(catalog, writer, kb, number, [words.point(i) for i in range(DOCUMENT_CHUNKS)])
    await connection.aclose()
    (folder / "bases.json").write_text(json.dumps([(kb.id, kb.index.id) for kb in bases]), encoding="utf-8")


async def _make_base(catalog: Catalog, number: int) -> KnowledgeBase:
    spec = KnowledgeBaseSpec(
        name=f"base {number}",
        embedding_model=MODEL,
        sparse_model="bm25",
        collection=SCHEMA.collection,
        dimensions=DIMENSIONS,
        tokenizer_version=TOKENIZER_VERSION,
        language="en",
    )
    return await catalog.knowledge_bases.create(TENANT, spec)


async def _make_document(
    catalog: Catalog, writer: IndexWriter, kb: KnowledgeBase, number: int, points: list[PointWrite]
) -> None:
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    upload = UploadSpec(name=f"file {number}.txt", sha256=digest, size_bytes=1_000, on_duplicate=OnDuplicate.ALLOW)
    outcome = await catalog.documents.accept_upload(TENANT, kb.id, upload)
    await catalog.jobs.lease("bench", kinds=(JobKind.INGEST,), lease_s=600, limit=10)
    assert await catalog.versions.start(outcome.version)
    document = IndexedDocument(
        kb_id=kb.id,
        index_version=kb.index.id,
        document_id=outcome.document_id,
        doc_version=DocVersionId(outcome.version),
        name=upload.name,
        metadata=upload.metadata,
    )
    await writer.write(SCHEMA, document, points, timeout_s=600)
    length = CHUNK_WORDS * len(points)
    stats = VersionStats(chunk_count=len(points), token_count=length, bm25_length_total=length)
    assert await catalog.versions.activate(outcome.version, stats)


class Asker:
    """The three things that are timed, for new queries in changing knowledge bases."""

    def __init__(self, client: AsyncClient, reader: IndexReader, bases: list[tuple[str, int]]) -> None:
        self._client, self._reader, self._bases = client, reader, bases
        self._embedder = ClientEmbedder(client)
        self._words = Words(seed=time.time_ns())
        self._turn = 0

    async def parts(self) -> tuple[float, float, float]:
        """Seconds of embedding alone, of the index query alone, and of a search; each for its own query."""
        self._turn += 1
        kb, index_version = self._bases[self._turn % len(self._bases)]
        started = time.perf_counter()
        vectors = await self._embedder.embed(self._words.query(), NEED, timeout_s=20)
        embedded = time.perf_counter()
        assert vectors.dense is not None
        assert vectors.sparse is not None
        query = IndexQuery(
            schema=SCHEMA,
            kb_id=KnowledgeBaseId(kb),
            index_version=IndexVersionId(index_version),
            dense=(vectors.dense,),
            sparse=(vectors.sparse,),
        )
        asked = time.perf_counter()
        await self._reader.search(query, timeout_s=20)
        answered = time.perf_counter()
        return embedded - started, answered - asked, await self.search()

    async def search(self) -> float:
        started = time.perf_counter()
        reply = await self._client.search(self._words.query(), self._bases[self._turn % len(self._bases)][0])
        took = time.perf_counter() - started
        assert reply.passages
        self.stages = {report.stage: report for report in reply.stages}
        return took


async def measure_parts(asker: Asker, repeat: int) -> dict[str, object]:
    for _ in range(100):
        await asker.parts()
    rows, stages = [], []
    for _ in range(repeat):
        rows.append(await asker.parts())
        stages.append(asker.stages)
    embed, query, search = (list(column) for column in zip(*rows, strict=True))
    halves = [rows[: repeat // 2], rows[repeat // 2 :]]
    overheads = [_overhead_ms(*zip(*half, strict=True)) for half in halves]
    return {
        "embed": _summary(embed),
        "index_query": _summary(query),
        "search": _summary(search),
        "overhead_ms": round(_overhead_ms(embed, query, search), 2),
        "overhead_ms_by_half": [round(o, 2) for o in overheads],
        "stage_p50_ms": {name: _stage_ms([s[name] for s in stages if name in s]) for name in stages[-1]},
    }


def _overhead_ms(embed: list[float], query: list[float], search: list[float]) -> float:
    """Of the medians."""
    return (statistics.median(search) - statistics.median(embed) - statistics.median(query)) * 1e3


def _stage_ms(reports: list[object]) -> float:
    return round(statistics.median(report.duration_ms for report in reports), 2)  # type: ignore[attr-defined]


async def measure_upload(asker: Asker, folder: Path, targets: tuple[str, str], upload: int) -> dict[str, object]:
    """Search and ask for health all the time while a child process writes; it prints a line when it begins to write."""
    target, engine = targets
    quiet = _summary([await asker.search() for _ in range(100)])
    command = ["-m", "bench.search_overhead", "--child-upload", engine, str(upload), "--data", str(folder)]
    child = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    await _line_after(child.stdout, _WRITES)
    started, searches, health = time.perf_counter(), [], []
    async with grpc.aio.insecure_channel(target) as channel:
        task = asyncio.create_task(_ask_health(channel, health))
        while child.returncode is None:
            searches.append(await asker.search())
            await asyncio.sleep(SEARCH_INTERVAL_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert child.returncode == 0
    return {
        "uploaded": upload,
        "seconds": round(time.perf_counter() - started, 1),
        "search_before": quiet,
        "search_during": _summary(searches),
        "slowest_ms": [round(s * 1e3) for s in sorted(searches)[-6:]],
        "most_added_ms": round((max(searches)) * 1e3 - quiet["p50_ms"]),
        "health_during": _summary(health),
    }


async def _ask_health(channel: grpc.aio.Channel, times: list[float]) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    while True:
        started = time.perf_counter()
        reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
        times.append(time.perf_counter() - started)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        await asyncio.sleep(HEALTH_INTERVAL_S)


async def child_upload(engine: str, folder: Path, upload: int) -> None:
    words, connection = Words(seed=time.time_ns()), IndexConnection(engine)
    writer, made = IndexWriter(connection), [words.point(i) for i in range(upload)]
    kb, index_version = _bases(folder)[1]
    document = IndexedDocument(
        kb_id=KnowledgeBaseId(kb),
        index_version=IndexVersionId(index_version + 1_000_000),  # a version that is being built
        document_id="doc_upload",  # type: ignore[arg-type]
        doc_version=DocVersionId(time.time_ns() // 1_000_000),
        name="upload",
        metadata=UploadSpec(name="upload", sha256="", size_bytes=0).metadata,
    )
    print(_WRITES, flush=True)
    await writer.write(SCHEMA, document, made, timeout_s=600)
    await connection.aclose()


def _bases(folder: Path) -> list[tuple[str, int]]:
    return [(kb, version) for kb, version in json.loads((folder / "bases.json").read_text(encoding="utf-8"))]


async def child_serve(folder: Path, engine: str) -> None:
    server = AllInOne(UpSettings(data_dir=folder, qdrant_url=engine, port=0, metrics_port=0))
    await server.start()
    print(_SERVES + server.target, flush=True)
    with contextlib.suppress(asyncio.CancelledError):
        await server.wait_for_signal()
    await server.stop()


async def bench(folder: Path, arguments: argparse.Namespace) -> dict[str, object]:
    supervisor = EngineSupervisor(folder / "engine")
    await supervisor.start()
    try:
        if not (folder / "bases.json").exists():
            await fill(folder, supervisor.target, arguments.chunks)
        command = ["-m", "bench.search_overhead", "--child-serve", supervisor.target, "--data", str(folder)]
        server = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
        assert server.stdout is not None
        drain = None
        try:
            target = await asyncio.wait_for(_line_after(server.stdout, _SERVES), 300)
            drain = asyncio.create_task(server.stdout.read())  # a full pipe would stop the server
            return await _measure(folder, (target, supervisor.target), arguments)
        finally:
            with contextlib.suppress(ProcessLookupError):
                server.terminate()
            await server.wait()
            if drain:
                await drain
    finally:
        await supervisor.aclose()


async def _measure(folder: Path, targets: tuple[str, str], arguments: argparse.Namespace) -> dict[str, object]:
    connection = IndexConnection(targets[1])
    report: dict[str, object] = {"chunks": arguments.chunks, "cores": os.cpu_count()}
    async with AsyncClient(targets[0]) as client:
        asker = Asker(client, IndexReader(connection), _bases(folder))
        for number in range(arguments.rounds):
            report[f"load_{number}"] = [round(load, 1) for load in os.getloadavg()]
            report[f"parts_{number}"] = await measure_parts(asker, arguments.repeat)
        if arguments.upload:
            report["upload"] = await measure_upload(asker, folder, targets, arguments.upload)
        report["load_end"] = [round(load, 1) for load in os.getloadavg()]
    await connection.aclose()
    return report


async def _line_after(stream: asyncio.StreamReader, mark: str) -> str:
    """The rest of the first line that begins with `mark`; a server logs to the same stream."""
    while line := (await stream.readline()).decode():
        if line.startswith(mark):
            return line.removeprefix(mark).strip()
    raise RuntimeError(f"the child process ended before it said {mark!r}")


def _summary(times_s: list[float]) -> dict[str, float]:
    ordered = sorted(times_s)
    at = {f"p{q}_ms": round(ordered[min(int(len(ordered) * q / 100), len(ordered) - 1)] * 1e3, 2) for q in (10, 50, 90)}
    return at | {"max_ms": round(ordered[-1] * 1e3, 2), "n": len(ordered)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--upload", type=int, default=10_000, help="chunks written while searching; 0: skip this")
    parser.add_argument("--repeat", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--data", type=Path, help="folder to fill, or to use again")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child-upload", nargs=2, metavar=("ENGINE", "CHUNKS"), help=argparse.SUPPRESS)
    parser.add_argument("--child-serve", metavar="ENGINE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child_upload:
        asyncio.run(child_upload(arguments.child_upload[0], arguments.data, int(arguments.child_upload[1])))
        return
    if arguments.child_serve:
        asyncio.run(child_serve(arguments.data, arguments.child_serve))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = json.dumps(asyncio.run(bench(folder, arguments)), indent=1)
    print(report)
    if arguments.out:
        arguments.out.write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
