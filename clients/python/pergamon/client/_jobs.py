"""The methods for jobs: long work that the server does after it answered."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import cached_property

import grpc

from pergamon.client._calls import STREAM_TIMEOUT_S, CallContext, errors_of_call
from pergamon.client._core import ServiceMethods, all_pages
from pergamon.client.errors import PergamonError, UnavailableError
from pergamon.ingestor.v1 import job_pb2 as pb
from pergamon.ingestor.v1.job_pb2_grpc import JobServiceStub

_ENDED = frozenset({pb.JOB_STATE_DONE, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED})


class JobMethods(ServiceMethods):
    """Follows long work."""

    @cached_property
    def _jobs(self):
        return JobServiceStub(self._channels.of("ingestor"))

    async def get_job(self, job_id: str, *, timeout_s: float | None = None) -> pb.Job:
        """One job as it is now."""
        request = pb.GetJobRequest(job_id=job_id)
        return (await self._calls.unary(self._jobs.GetJob, request, timeout_s=timeout_s)).job

    def list_jobs(
        self,
        knowledge_base_id: str,
        *,
        states: Sequence[pb.JobState.ValueType] = (),
        page_size: int = 0,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[pb.Job, None]:
        """Jobs of a knowledge base, newest first; pages are fetched as they are needed, each within `timeout_s`."""

        async def fetch(token: str) -> tuple[Sequence[pb.Job], str]:
            request = pb.ListJobsRequest(
                knowledge_base_id=knowledge_base_id, page_size=page_size, page_token=token, states=states
            )
            page = await self._calls.unary(self._jobs.ListJobs, request, timeout_s=timeout_s)
            return page.jobs, page.next_page_token

        return all_pages(fetch)

    async def watch_job(self, job_id: str, *, timeout_s: float | None = None) -> AsyncGenerator[pb.Job, None]:
        """The job as it is, then again after each change, until it has ended; the last one has ended.

        A broken connection is made anew, without repeating what was seen. `timeout_s` is for the whole; unset: an hour.

        >>> async for job in client.watch_job("job_1"):
        ...     print(job.stage)
        parse
        embed
        """
        call = self._calls.begin("ingestor", timeout_s, STREAM_TIMEOUT_S)
        seen: pb.Job | None = None
        while True:
            try:
                async with aclosing(self._watch_once(call, job_id)) as jobs:
                    async for job in jobs:
                        if job == seen:
                            continue
                        seen = job
                        call.attempt = 1  # the connection works again
                        yield job
                        if job.state in _ENDED:
                            return
                message = "the server ended the watch before the job had ended"
                error = UnavailableError(grpc.StatusCode.UNAVAILABLE, "", message, request_id=call.request_id)
            except PergamonError as broken:
                error = broken
            await call.wait_to_retry(error)

    async def _watch_once(self, call: CallContext, job_id: str) -> AsyncGenerator[pb.Job, None]:
        stream = self._jobs.WatchJob(pb.WatchJobRequest(job_id=job_id), timeout=call.left_s(), metadata=call.metadata)
        try:
            while True:
                with errors_of_call(call.request_id):
                    reply = await stream.read()
                if not isinstance(reply, pb.WatchJobResponse):
                    return
                yield reply.job
        finally:
            stream.cancel()

    async def wait_for_job(self, job_id: str, timeout_s: float | None = None) -> pb.Job:
        """The job once it has ended, well or not: look at `state` and `failure`.

        Raises DeadlineExceededError when it has not ended in `timeout_s`; unset: an hour.
        """
        async with aclosing(self.watch_job(job_id, timeout_s=timeout_s)) as jobs:
            last = pb.Job()
            async for job in jobs:
                last = job
            return last

    async def cancel_job(self, job_id: str, *, timeout_s: float | None = None) -> pb.Job:
        """Cancel a job and return it; one that had ended before stays as it ended. Not repeated on failure."""
        request = pb.CancelJobRequest(job_id=job_id)
        method = self._jobs.CancelJob
        return (await self._calls.unary(method, request, timeout_s=timeout_s, repeatable=False)).job
