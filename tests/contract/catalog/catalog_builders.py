"""Short ways to a knowledge base, an upload, a live version."""

import hashlib
from dataclasses import dataclass
from typing import Any

from services.catalog.catalog import Catalog
from services.catalog.job_types import Job, JobKind
from services.catalog.types import KnowledgeBase, KnowledgeBaseSpec, UploadOutcome, UploadSpec, VersionStats
from services.domain.ids import DocVersionId, KnowledgeBaseId, TenantId

TENANT = TenantId("acme")
OTHER = TenantId("globex")
ALL_KINDS = tuple(JobKind)


@dataclass(slots=True)
class Clock:
    """Seconds since 1970, as far as the test lets them pass."""

    seconds: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds

    def forward(self, seconds: float) -> None:
        self.seconds += seconds


def kb_spec(**changes: Any) -> KnowledgeBaseSpec:
    given: dict[str, Any] = {
        "name": "handbook",
        "embedding_model": "e5",
        "sparse_model": "bm25",
        "collection": "e5_384_v1",
        "dimensions": 384,
        "tokenizer_version": "1",
        **changes,
    }
    return KnowledgeBaseSpec(**given)


def upload(name: str = "a.txt", content: str = "hello", **changes: Any) -> UploadSpec:
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    return UploadSpec(name=name, sha256=sha256, size_bytes=len(content), **changes)


def stats(chunks: int = 4, length: int = 40, **changes: Any) -> VersionStats:
    return VersionStats(chunk_count=chunks, token_count=10 * chunks, bm25_length_total=length, **changes)


async def make_kb(catalog: Catalog, tenant: TenantId = TENANT, **changes: Any) -> KnowledgeBase:
    return await catalog.knowledge_bases.create(tenant, kb_spec(**changes))


async def put(
    catalog: Catalog, kb: KnowledgeBase, name: str = "a.txt", content: str = "hello", **changes: Any
) -> UploadOutcome:
    return await catalog.documents.accept_upload(kb.tenant_id, kb.id, upload(name, content, **changes))


async def put_live(catalog: Catalog, kb: KnowledgeBase, name: str = "a.txt", content: str = "hello") -> UploadOutcome:
    """Uploaded, ingested and live, its job done."""
    outcome = await put(catalog, kb, name, content)
    (job,) = [job for job in await lease(catalog, kinds=(JobKind.INGEST,), limit=10) if job.id == outcome.job_id]
    assert await catalog.versions.start(outcome.version)
    assert await catalog.versions.activate(outcome.version, stats())
    assert await catalog.jobs.finish(job.id, "worker")
    return outcome


async def lease(
    catalog: Catalog,
    owner: str = "worker",
    *,
    kinds: tuple[JobKind, ...] = ALL_KINDS,
    lease_s: float = 30.0,
    limit: int = 1,
) -> tuple[Job, ...]:
    return await catalog.jobs.lease(owner, kinds=kinds, lease_s=lease_s, limit=limit)


async def hidden(catalog: Catalog, kb_id: KnowledgeBaseId, tenant: TenantId = TENANT) -> tuple[DocVersionId, ...]:
    snapshot = await catalog.snapshots.search_snapshot(tenant, [kb_id])
    return snapshot.knowledge_bases[0].hidden_doc_versions
