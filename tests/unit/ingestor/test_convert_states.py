"""States to list by, from the wire."""

from pergamon.ingestor.v1 import document_pb2, job_pb2

from services.catalog.job_types import JobState
from services.catalog.types import DocumentState
from services.ingestor import convert_document, convert_job


def test_states_in_when_a_state_is_repeated_then_it_is_asked_for_once() -> None:
    documents = [document_pb2.DOCUMENT_STATE_DONE, document_pb2.DOCUMENT_STATE_FAILED] * 50_000
    jobs = [job_pb2.JOB_STATE_DONE] * 50_000
    assert convert_document.states_in(documents, "states") == (DocumentState.DONE, DocumentState.FAILED)
    assert convert_job.states_in(jobs) == (JobState.DONE,)
