"""The ingestor's parts for a test: a catalogue and blobs in a folder, an embedder that needs no model, parsers in this
process."""

import hashlib
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import create_engine
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from services.catalog.catalog import Catalog, open_catalog
from services.catalog.folder_blobs import FolderBlobStore
from services.catalog.job_types import Job, JobKind
from services.catalog.migrate import migrate
from services.catalog.settings import CatalogSettings
from services.catalog.types import KnowledgeBase, KnowledgeBaseSpec, OnDuplicate, UploadOutcome, UploadSpec
from services.common.metrics import Metrics
from services.domain.blocks import DocumentMetadata
from services.domain.chunks import Chunking
from services.domain.ids import TenantId
from services.embedder.bm25 import Bm25Encoder
from services.index.reader import IndexReader
from services.index.schema import CollectionSchema
from services.index.writer import IndexWriter
from services.ingestor.blob_keys import uploads_prefix
from services.ingestor.checkpoint import Checkpoint
from services.ingestor.pipeline import Pipeline, Progress
from services.ingestor.ports import EmbeddedPassages, EmbeddingModel, SparseVector
from services.ingestor.settings import IngestorSettings
from services.ingestor.sparse_rewrite import SparseRewrite

TENANT = TenantId("acme")
DIMENSIONS = 32
SCHEMA = CollectionSchema(model="hashed", dimensions=DIMENSIONS, tokenizer_version="bm25-1")


class HashingEmbedder:
    """Dense vectors from a hash of the text, real BM25. Counts what it is asked; raises what it is told to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bm25 = Bm25Encoder()
        self.embedded: list[str] = []
        self.averages: list[float] = []
        self.before_embed: Callable[[], None] = lambda: None

    async def dense_model(self, name: str) -> EmbeddingModel:
        return EmbeddingModel(
            name="hashed", dimensions=DIMENSIONS, max_tokens=256, passage_overhead_tokens=0, tokenizer_sha256="t"
        )

    async def sparse_tokenizer_version(self, name: str) -> str:
        return "bm25-1"

    async def tokenizer_file(self, sha256: str) -> Path:
        path = self._folder / "tokenizer.json"
        if not path.exists():
            tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
            tokenizer.pre_tokenizer = Whitespace()
            tokenizer.save(str(path))
        return path

    async def embed(
        self,
        texts: Sequence[str],
        *,
        dense_model: str | None,
        sparse_model: str,
        average_length: float,
        language: str,
        timeout_s: float,
    ) -> EmbeddedPassages:
        self.before_embed()
        self.averages.append(average_length)
        sparse = [self._bm25.passage_vector(text, average_length=average_length) for text in texts]
        if dense_model is not None:
            self.embedded += texts
        return EmbeddedPassages(
            dense=np.stack([vector_of(text) for text in texts]) if dense_model is not None else None,
            sparse=tuple(SparseVector(indices=vector.indices, values=vector.values) for vector in sparse),
            lengths=tuple(vector.length for vector in sparse),
        )


def vector_of(text: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    vector = np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
    return vector / np.linalg.norm(vector)


class InlineWorkers:
    """Runs what worker processes would run, here and now."""

    async def run(self, fn: Callable[..., Any], *args: object, timeout_s: float, **kwargs: object) -> Any:
        return fn(*args, **kwargs)


@dataclass(kw_only=True)
class Workshop:
    """A catalogue, blobs and settings below one folder."""

    catalog: Catalog
    blobs: FolderBlobStore
    embedder: HashingEmbedder
    settings: IngestorSettings
    workers: InlineWorkers = field(default_factory=InlineWorkers)

    async def kb(self, *, size: int = 16) -> KnowledgeBase:
        spec = KnowledgeBaseSpec(
            name="handbook",
            embedding_model=SCHEMA.model,
            sparse_model="bm25",
            collection=SCHEMA.collection,
            dimensions=DIMENSIONS,
            tokenizer_version=SCHEMA.tokenizer_version,
            chunking=Chunking(size=size, overlap=0, min_size=1),
            language="en",
        )
        return await self.catalog.knowledge_bases.create(TENANT, spec)

    async def put(self, kb: KnowledgeBase, name: str, text: str, **metadata: Any) -> UploadOutcome:
        """Stored and recorded, as an upload does it; its job waits."""
        content = text.encode()
        sha256 = hashlib.sha256(content).hexdigest()
        key = f"{uploads_prefix(TENANT, kb.id)}/{sha256[:16]}-{name.replace('.', '-')}"
        await self.blobs.put(key, content)
        spec = UploadSpec(
            name=name,
            sha256=sha256,
            size_bytes=len(content),
            blob_key=key,
            metadata=DocumentMetadata(**metadata),
            on_duplicate=OnDuplicate.ALLOW,
        )
        return await self.catalog.documents.accept_upload(TENANT, kb.id, spec)

    async def lease(self, kind: JobKind = JobKind.INGEST, owner: str = "worker") -> Job:
        (job,) = await self.catalog.jobs.lease(owner, kinds=(kind,), lease_s=60, limit=1)
        return job

    def progress(self, job: Job, *, stop_after: int | None = None) -> Progress:
        """Keeps checkpoints with the job; dies after the checkpoint `stop_after` (from 1) as a killed worker does."""
        saved = 0

        async def report(stage: str, done: int, total: int) -> None:
            return None

        async def save(checkpoint: Checkpoint) -> None:
            nonlocal saved
            assert await self.catalog.jobs.checkpoint(job.id, job.lease_owner or "", checkpoint.to_json())
            saved += 1
            if saved == stop_after:
                raise Killed

        return Progress(report, save)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A pipeline over a real catalogue, real blobs and a real engine."""

    shop: Workshop
    writer: IndexWriter
    reader: IndexReader
    pipeline: Pipeline
    metrics: Metrics
    rewrite: SparseRewrite


class Killed(Exception):
    """Stands for kill -9: nothing after it runs."""


def migrated_catalog(folder: Path) -> Path:
    """A database file with the schema and nothing in it, to copy: that is quicker than to migrate for each test."""
    path = folder / "template.db"
    engine = create_engine(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    return path


@asynccontextmanager
async def workshop(folder: Path, template: Path) -> AsyncIterator[Workshop]:
    """A workshop below `folder`, with a copy of the catalogue `template`."""
    shutil.copy(template, folder / "catalog.db")
    blobs = FolderBlobStore(folder / "blobs")
    await blobs.open()
    settings = IngestorSettings(data_dir=folder, embed_batch=4, index_timeout_s=20)
    catalog_settings = CatalogSettings(url=f"sqlite:///{folder / 'catalog.db'}", pool_size=2, retire_delay_s=0)
    async with open_catalog(catalog_settings) as catalog:
        yield Workshop(catalog=catalog, blobs=blobs, embedder=HashingEmbedder(folder), settings=settings)


def paragraphs(count: int, word: str = "rail") -> str:
    return "\n\n".join(
        f"Paragraph {n} says that {word} travel in zone {n} is paid by unit {n} always." for n in range(count)
    )
