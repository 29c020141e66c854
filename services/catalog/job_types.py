"""Jobs as the catalogue gives them out."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from services.catalog.types import Failure
from services.domain.blocks import ParseWarning
from services.domain.ids import DocumentId, DocVersionId, JobId, KnowledgeBaseId, TenantId

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"


class JobKind(StrEnum):
    """INGEST makes a version searchable; RETIRE removes its points and blobs; PURGE those of a knowledge base."""

    INGEST = "INGEST"
    RETIRE = "RETIRE"
    PURGE = "PURGE"
    UPDATE_METADATA = "UPDATE_METADATA"
    REWRITE_SPARSE = "REWRITE_SPARSE"


class JobState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


OPEN_STATES = (JobState.PENDING, JobState.RUNNING)
#: Clean-up must happen in the end: these are retried for ever, with growing pauses.
ENDLESS_KINDS = (JobKind.RETIRE, JobKind.PURGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a stage is, in units of that stage (pages, chunks). `total` is 0 while unknown."""

    done: int
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A piece of work. `change_seq` grows with every change; `attempt` counts the leases taken since the work last got
    further, from 1 once running."""

    id: JobId
    tenant_id: TenantId
    knowledge_base_id: KnowledgeBaseId
    document_id: DocumentId | None
    version: DocVersionId | None
    kind: JobKind
    state: JobState
    stage: str
    counters: dict[str, Progress]
    checkpoint: Json
    attempt: int
    max_attempts: int
    not_before: datetime
    lease_owner: str | None
    lease_expires: datetime | None
    error: Failure | None
    warnings: tuple[ParseWarning, ...] = field(default=())
    created_time: datetime
    updated_time: datetime
    finished_time: datetime | None
    change_seq: int

    @property
    def finished(self) -> bool:
        return self.state not in OPEN_STATES
