"""The whole product for a test: started in a thread, called as clients call it, and looked into from below."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pergamon.client import AsyncClient, RetryPolicy
from pergamon.ingestor.v1 import document_pb2, job_pb2, knowledge_base_pb2
from pergamon.retriever.v1 import retriever_pb2

from services.catalog.catalog import open_catalog
from services.catalog.settings import CatalogSettings
from services.catalog.types import KnowledgeBase
from services.domain.ids import DocVersionId, KnowledgeBaseId, TenantId
from services.index.connection import IndexConnection
from services.index.schema import CollectionSchema
from services.index.writer import IndexWriter
from services.launch.all_in_one import AllInOne, sqlite_url
from services.launch.settings import UpSettings
from tests.helpers.processes import engine_of

MODEL = "all-minilm-l6-v2"
#: Waits and lives short enough for a test to see their ends. Searches in tests end well within the retire delay.
QUICK = {
    "PERGAMON_EMBEDDING_MODELS": MODEL,
    "PERGAMON_LEASE_S": "4",
    "PERGAMON_RETIRE_DELAY_S": "2",
    "PERGAMON_POLL_INTERVAL_S": "0.1",
    "PERGAMON_DRAIN_SECONDS": "0",
    "PERGAMON_METRICS_PORT": "0",
    "PERGAMON_LOG_LEVEL": "WARNING",
    "PERGAMON_MAX_UPLOAD_MIB": "8",
}
KEYS = {
    "acme": ("acme", "admin"),
    "acme-writer": ("acme", "writer"),
    "acme-reader": ("acme", "reader"),
    "globex": ("globex", "admin"),
}
#: No repeats: a test sees the first answer.
ONCE = RetryPolicy(max_attempts=1)


def write_keys(path: Path) -> Path:
    entries = [
        {"id": name, "tenant": tenant, "role": role, "sha256": hashlib.sha256(key_of(name).encode()).hexdigest()}
        for name, (tenant, role) in KEYS.items()
    ]
    path.write_text(json.dumps(entries), encoding="utf-8")
    return path


def key_of(name: str) -> str:
    return f"{name}-secret-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """An all-in-one that runs, with two tenants."""

    target: str
    data_dir: Path

    def client(self, name: str = "acme", *, timeout_s: float = 30.0) -> AsyncClient:
        """A client with the key of that name; an unknown name is sent as it is, an empty one sends no key."""
        key = key_of(name) if name in KEYS else name
        return AsyncClient(self.target, api_key=key or None, retry=ONCE, timeout_s=timeout_s)


@contextmanager
def running_product(data_dir: Path, *, keys: bool = True) -> Iterator[Product]:
    """The product in a thread of its own, so that a test that blocks does not stop it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in QUICK.items():
            environment.setenv(name, value)
        settings = UpSettings(
            data_dir=data_dir, port=0, threads=2, api_keys_file=write_keys(data_dir / "keys.json") if keys else None
        )
        server = AllInOne(settings)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="product")
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(server.start(), loop).result(timeout=120)
            try:
                yield Product(target=server.target, data_dir=data_dir)
            finally:
                asyncio.run_coroutine_threadsafe(server.stop(), loop).result(timeout=60)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def make_kb(client: AsyncClient, name: str = "handbook", **fields: object) -> str:
    return (await client.create_knowledge_base(name, **fields)).id  # type: ignore[arg-type]


async def put(
    client: AsyncClient,
    kb_id: str,
    name: str,
    content: str | bytes,
    **options: object,
) -> document_pb2.Document:
    """Upload, wait, and demand that it ends DONE."""
    data = content.encode() if isinstance(content, str) else content
    reply = await client.upload_document(kb_id, data, name=name, **options)  # type: ignore[arg-type]
    if reply.job_id:
        job = await client.wait_for_job(reply.job_id, timeout_s=60)
        assert job.state == job_pb2.JOB_STATE_DONE, f"{name}: {job.failure.reason}: {job.failure.message}"
    return await client.get_document(reply.document.id)


async def fail_to_put(client: AsyncClient, kb_id: str, name: str, content: bytes) -> job_pb2.JobFailure:
    """Upload what is accepted and then cannot be ingested; says why."""
    reply = await client.upload_document(kb_id, content, name=name)
    job = await client.wait_for_job(reply.job_id, timeout_s=60)
    assert job.state == job_pb2.JOB_STATE_FAILED
    return job.failure


def names(reply: retriever_pb2.SearchResponse | retriever_pb2.RetrieveResponse) -> list[str]:
    return [passage.document_name for passage in reply.passages]


async def until(condition: Callable[[], object], *, within_s: float = 30.0, what: str = "the condition") -> None:
    """Ask again until `condition` (a function, or one that returns an awaitable) holds."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                answer = condition()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true within {within_s:g} s") from None


async def jobs_ended(client: AsyncClient, kb_id: str) -> bool:
    """Whether no job of the knowledge base is left to do, clean-up included."""
    open_states = [job_pb2.JOB_STATE_PENDING, job_pb2.JOB_STATE_RUNNING]
    return not [job async for job in client.list_jobs(kb_id, states=open_states)]


def blobs_below(data_dir: Path, tenant: str, kb_id: str) -> list[Path]:
    return [path for path in (data_dir / "blobs" / tenant / kb_id).rglob("*") if path.is_file()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What lies in the index and the catalogue about one knowledge base."""

    live: dict[DocVersionId, int]
    points: dict[DocVersionId, int]


async def stored(data_dir: Path, tenant: str, kb_id: str) -> Stored:
    """Live versions with their chunk counts by the catalogue, and all versions with points by the index."""
    async with open_catalog(CatalogSettings(url=sqlite_url(data_dir))) as catalog:
        kb = await catalog.knowledge_bases.get(TenantId(tenant), KnowledgeBaseId(kb_id))
        live: dict[DocVersionId, int] = {}
        token = ""
        while True:
            page = await catalog.documents.list(kb.tenant_id, kb.id, page_size=500, page_token=token)
            live |= {d.live_version: d.chunk_count for d in page.entries if d.live_version is not None}
            token = page.next_page_token
            if not token:
                break
        return Stored(live=live, points=await points_of(data_dir, kb))


async def points_of(data_dir: Path, kb: KnowledgeBase) -> dict[DocVersionId, int]:
    index = IndexConnection(engine_of(data_dir).target)
    try:
        return await IndexWriter(index).doc_versions(schema_of_kb(kb), kb.id, timeout_s=10)
    finally:
        await index.aclose()


async def point_count(data_dir: Path, schema: CollectionSchema, kb_id: str) -> int:
    index = IndexConnection(engine_of(data_dir).target)
    try:
        return await IndexWriter(index).count(schema, KnowledgeBaseId(kb_id), timeout_s=10)
    finally:
        await index.aclose()


def schema_of_kb(kb: KnowledgeBase) -> CollectionSchema:
    return CollectionSchema(
        model=kb.embedding_model, dimensions=kb.index.dimensions, tokenizer_version=kb.index.tokenizer_version
    )


def chunked(size: int) -> knowledge_base_pb2.Chunking:
    """Small chunks, so that short texts make several."""
    return knowledge_base_pb2.Chunking(size=size, overlap=0, min_size=1)
