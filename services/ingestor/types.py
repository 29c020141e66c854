"""What the parts of the ingestor hand to each other."""

from dataclasses import dataclass

from services.catalog.job_types import Job
from services.catalog.types import Document, DocumentVersion, KnowledgeBase, RetrievalDefaults
from services.domain.chunks import Chunking
from services.domain.ids import DocVersionId
from services.index.schema import CollectionSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKnowledgeBase:
    """A checked request to create one; empty model names mean the defaults."""

    name: str
    description: str
    chunking: Chunking
    retrieval: RetrievalDefaults
    embedding_model: str
    sparse_model: str
    language: str
    labels: dict[str, str]
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A version of a document and what it belongs to. `begun`: an attempt before may have left parses and points."""

    version: DocumentVersion
    begun: bool
    document: Document
    kb: KnowledgeBase

    @property
    def schema(self) -> CollectionSchema:
        return schema_of(self.kb)


def schema_of(kb: KnowledgeBase) -> CollectionSchema:
    """The vector schema that the knowledge base's live index version was made with."""
    return CollectionSchema(
        model=kb.embedding_model, dimensions=kb.index.dimensions, tokenizer_version=kb.index.tokenizer_version
    )


def required_version(job: Job) -> DocVersionId:
    if job.version is None:
        raise ValueError(f"job {job.id} of kind {job.kind} names no version")
    return job.version
