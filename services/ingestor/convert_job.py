"""Jobs between the wire and the catalogue."""

from pergamon.ingestor.v1 import job_pb2 as pb

from services.catalog.job_types import Job, JobKind, JobState
from services.common.validation import Violations
from services.ingestor.convert_document import warning_out
from services.ingestor.convert_knowledge_base import timestamp

_STATES_OUT = {state: pb.JobState.Value(f"JOB_STATE_{state.value}") for state in JobState}
_STATES_IN = {number: state for state, number in _STATES_OUT.items()}
_KINDS = {kind: pb.JobKind.Value(f"JOB_KIND_{kind.value}") for kind in JobKind}


def job_out(job: Job) -> pb.Job:
    return pb.Job(
        id=job.id,
        kind=_KINDS[job.kind],
        state=_STATES_OUT[job.state],
        knowledge_base_id=job.knowledge_base_id,
        document_id=job.document_id or "",
        stage=job.stage,
        progress=[
            pb.StageProgress(stage=stage, done=progress.done, total=progress.total)
            for stage, progress in job.counters.items()
        ],
        attempt=job.attempt,
        failure=pb.JobFailure(reason=job.error.reason, message=job.error.message) if job.error else None,
        warnings=[warning_out(warning) for warning in job.warnings],
        created_time=timestamp(job.created_time),
        updated_time=timestamp(job.updated_time),
        finished_time=timestamp(job.finished_time) if job.finished_time else None,
    )


def states_in(states: list[pb.JobState.ValueType]) -> tuple[JobState, ...]:
    found = Violations()
    wanted = dict.fromkeys(states)  # a state said twice is said once: the catalogue bounds the values of a query
    for state in wanted:
        found.check(state in _STATES_IN, "states", f"unknown value {state}")
    found.raise_if_any()
    return tuple(_STATES_IN[state] for state in wanted)
