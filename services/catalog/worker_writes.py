"""The bounds of what a worker may store with its job, and the condition that the job is still its own."""

import json

from sqlalchemy import ColumnElement

from services.catalog.job_types import JobState, Json, Progress
from services.catalog.tables import jobs
from services.domain.ids import JobId

_STAGES_MAX = 32
_STAGE_MAX_CHARS = 64


def held_by(job_id: JobId, owner: str) -> tuple[ColumnElement[bool], ...]:
    return (jobs.c.id == job_id, jobs.c.lease_owner == owner, jobs.c.state == JobState.RUNNING)


def bounded_counters(counters: dict[str, Progress]) -> dict[str, list[int]]:
    """As stored: stage -> [done, total]."""
    if len(counters) > _STAGES_MAX or any(len(stage) > _STAGE_MAX_CHARS for stage in counters):
        raise ValueError(
            f"a job reports at most {_STAGES_MAX} stages, with names of up to {_STAGE_MAX_CHARS} characters"
        )
    return {stage: [progress.done, progress.total] for stage, progress in counters.items()}


def bounded_checkpoint(state: Json, max_bytes: int) -> None:
    size = len(json.dumps(state).encode())
    if size > max_bytes:
        raise ValueError(
            f"a checkpoint holds at most {max_bytes} bytes of JSON, got {size}; store large things as blobs"
        )
