"""Measuring retrieval on a judged collection: corpus.jsonl, queries.jsonl and qrels.tsv in one folder.

The corpus goes into a knowledge base of its own through the public API, one document an entry, and stays there, so that
a second run with other switches only searches.
"""

import asyncio
import hashlib
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pergamon.client import AsyncClient
from pergamon.ingestor.v1 import document_pb2, job_pb2, knowledge_base_pb2
from pergamon.retriever.v1 import retriever_pb2
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from services.launch.output import errors
from services.launch.ranking_metrics import ndcg_at, recall_at, reciprocal_rank_at

_DEPTH = 10
_TOP_K = 100
_UPLOADS_AT_ONCE = 32
_ONE_CHUNK = 100_000  # tokens; the model's input limit is what cuts


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A judged collection. `corpus` maps ids to (title, text), `judgements` query ids to graded document ids."""

    name: str
    language: str
    fingerprint: str
    corpus: Mapping[str, tuple[str, str]]
    queries: Mapping[str, str]
    judgements: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    mode: retriever_pb2.SearchMode.ValueType = retriever_pb2.SEARCH_MODE_HYBRID
    rerank: bool = False
    model: str = ""
    weights: tuple[float, float] | None = None
    limit: int = 0
    progress: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """Means over queries; latencies are of one search at a time, seen by the client."""

    collection: str
    documents: int
    skipped: int
    queries: int
    ndcg_at_10: float
    recall_at_10: float
    mrr_at_10: float
    p50_ms: float
    p95_ms: float
    degraded: int
    ingest_s: float = 0.0
    per_query: Mapping[str, float] = field(default_factory=dict[str, float])

    def as_dict(self) -> dict[str, Any]:
        names = ("ndcg_at_10", "recall_at_10", "mrr_at_10", "p50_ms", "p95_ms", "collection", "documents", "skipped")
        more = ("queries", "degraded", "ingest_s")
        values = {name: getattr(self, name) for name in (*names, *more)}
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


def load_collection(folder: Path) -> Collection:
    """Read a collection. Raises OSError or ValueError where a file is missing or malformed."""
    digest = hashlib.sha256()
    corpus: dict[str, tuple[str, str]] = {}
    for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        digest.update(line.encode())
        entry = json.loads(line)
        corpus[entry["_id"]] = (entry.get("title", ""), entry["text"])
    queries = {
        entry["_id"]: entry["text"]
        for entry in map(json.loads, (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines())
    }
    judgements: dict[str, dict[str, int]] = defaultdict(dict)
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        judgements[query][document] = int(grade)
    return Collection(
        name=folder.resolve().name,
        language="",
        fingerprint=digest.hexdigest()[:12],
        corpus=corpus,
        queries=queries,
        judgements=judgements,
    )


async def evaluate(client: AsyncClient, collection: Collection, options: EvalOptions) -> EvalResult:
    """Ingest the collection where that is still to be done, run its queries, and average the metrics."""
    started = time.perf_counter()
    knowledge_base_id, fresh = await _knowledge_base(client, collection, options.model)
    skipped = sum(1 for title, text in collection.corpus.values() if not (text.strip() or title.strip()))
    if fresh:
        await _ingest(client, knowledge_base_id, collection, options.progress)
    ingest_s = time.perf_counter() - started if fresh else 0.0
    queries = [query for query in collection.queries if query in collection.judgements]
    if options.limit:
        queries = queries[: options.limit]
    scores: dict[str, tuple[float, float, float]] = {}
    latencies: list[float] = []
    degraded = 0
    with _progress(options.progress) as bars:
        task = bars.add_task("queries", total=len(queries))
        for query in queries:
            ranked, elapsed_ms, whole = await _search(client, knowledge_base_id, collection.queries[query], options)
            relevance = collection.judgements[query]
            scores[query] = (
                ndcg_at(_DEPTH, ranked, relevance),
                recall_at(_DEPTH, ranked, relevance),
                reciprocal_rank_at(_DEPTH, ranked, relevance),
            )
            latencies.append(elapsed_ms)
            degraded += not whole
            bars.advance(task)
    return EvalResult(
        collection=collection.name,
        documents=len(collection.corpus) - skipped,
        skipped=skipped,
        queries=len(queries),
        ndcg_at_10=_mean([score[0] for score in scores.values()]),
        recall_at_10=_mean([score[1] for score in scores.values()]),
        mrr_at_10=_mean([score[2] for score in scores.values()]),
        p50_ms=_quantile(latencies, 0.5),
        p95_ms=_quantile(latencies, 0.95),
        degraded=degraded,
        ingest_s=ingest_s,
        per_query={query: score[0] for query, score in scores.items()},
    )


async def _knowledge_base(client: AsyncClient, collection: Collection, model: str) -> tuple[str, bool]:
    """The id of the scratch knowledge base, and whether documents are still to be ingested."""
    name = f"eval {collection.name} {collection.fingerprint} {model or 'default'}"
    async for kb in client.list_knowledge_bases():
        if kb.name == name:
            wanted = sum(1 for title, text in collection.corpus.values() if text.strip() or title.strip())
            return kb.id, kb.statistics.documents_by_state.get("DONE", 0) < wanted
    chunking = knowledge_base_pb2.Chunking(unit=knowledge_base_pb2.CHUNK_UNIT_TOKENS, size=_ONE_CHUNK, overlap=0)
    made = await client.create_knowledge_base(name, embedding_model=model, chunking=chunking)
    return made.id, True


async def _ingest(client: AsyncClient, knowledge_base_id: str, collection: Collection, progress: bool) -> None:
    entries = [(key, title, text) for key, (title, text) in collection.corpus.items() if text.strip() or title.strip()]
    gate = asyncio.Semaphore(_UPLOADS_AT_ONCE)
    with _progress(progress) as bars:
        task = bars.add_task(f"ingesting {collection.name}", total=len(entries))

        async def one(key: str, title: str, text: str) -> None:
            async with gate:
                reply = await client.upload_document(
                    knowledge_base_id,
                    (text if text.strip() else title).encode(),
                    name=key,
                    metadata=document_pb2.DocumentMetadata(title=title),
                    on_duplicate=document_pb2.DUPLICATE_POLICY_ALLOW,
                )
                if reply.job_id:
                    job = await client.wait_for_job(reply.job_id, timeout_s=3600)
                    if job.state != job_pb2.JOB_STATE_DONE:
                        raise RuntimeError(f"document {key}: {job.failure.reason}: {job.failure.message}")
                bars.advance(task)

        async with asyncio.TaskGroup() as group:
            for entry in entries:
                group.create_task(one(*entry))


async def _search(
    client: AsyncClient, knowledge_base_id: str, query: str, options: EvalOptions
) -> tuple[list[str], float, bool]:
    """Document names in order without repeats, milliseconds, and whether no stage was degraded."""
    dense, bm25 = options.weights or (None, None)
    started = time.perf_counter()
    response = await client.search(
        query[:8192],
        knowledge_base_id,
        mode=options.mode,
        top_k=_TOP_K,
        candidates=_TOP_K,
        rerank=options.rerank,
        dense_weight=dense,
        bm25_weight=bm25,
    )
    elapsed_ms = (time.perf_counter() - started) * 1000
    names = list(dict.fromkeys(passage.document_name for passage in response.passages))
    whole = all(stage.state != retriever_pb2.STAGE_STATE_DEGRADED for stage in response.stages)
    return names, elapsed_ms, whole


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _progress(enabled: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=errors, disable=not enabled, transient=True)
