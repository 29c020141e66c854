"""pergamon.ingestor.v1.JobService."""

import asyncio
from collections.abc import AsyncIterator

from pergamon.ingestor.v1 import job_pb2 as pb
from pergamon.ingestor.v1 import job_pb2_grpc as stubs

from services.catalog.catalog import Catalog
from services.common.auth import Role, require_unscoped
from services.common.rpc import Call, Edge, rpc
from services.common.validation import page_size
from services.domain.ids import JobId, KnowledgeBaseId
from services.ingestor.convert_job import job_out, states_in

SERVICE = pb.DESCRIPTOR.services_by_name["JobService"].full_name
_WATCH_TIMEOUT_S = 24 * 3600.0
_WATCH_INTERVAL_S = 0.05
_WATCH_INTERVAL_MAX_S = 1.0


class JobServicer(stubs.JobServiceServicer):
    def __init__(self, edge: Edge, catalog: Catalog) -> None:
        self.edge = edge
        self._jobs = catalog.jobs

    @rpc(Role.READER)
    async def GetJob(self, call: Call, request: pb.GetJobRequest) -> pb.GetJobResponse:
        require_unscoped(call.principal)
        return pb.GetJobResponse(job=job_out(await self._jobs.get(call.principal.tenant_id, JobId(request.job_id))))

    @rpc(Role.READER)
    async def ListJobs(self, call: Call, request: pb.ListJobsRequest) -> pb.ListJobsResponse:
        require_unscoped(call.principal)
        page = await self._jobs.list(
            call.principal.tenant_id,
            kb_id=KnowledgeBaseId(request.knowledge_base_id),
            states=states_in(list(request.states)),
            page_size=page_size(request.page_size),
            page_token=request.page_token,
        )
        return pb.ListJobsResponse(jobs=[job_out(job) for job in page.entries], next_page_token=page.next_page_token)

    @rpc(Role.READER, timeout_s=_WATCH_TIMEOUT_S)
    async def WatchJob(self, call: Call, request: pb.WatchJobRequest) -> AsyncIterator[pb.WatchJobResponse]:
        require_unscoped(call.principal)
        seen, pause_s = 0, _WATCH_INTERVAL_S
        while True:
            job = await self._jobs.changes(call.principal.tenant_id, JobId(request.job_id), after_seq=seen)
            if job is not None:
                seen, pause_s = job.change_seq, _WATCH_INTERVAL_S
                yield pb.WatchJobResponse(job=job_out(job))
                if job.finished:
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(_WATCH_INTERVAL_MAX_S, pause_s * 1.5)

    @rpc(Role.WRITER)
    async def CancelJob(self, call: Call, request: pb.CancelJobRequest) -> pb.CancelJobResponse:
        require_unscoped(call.principal)
        return pb.CancelJobResponse(
            job=job_out(await self._jobs.cancel(call.principal.tenant_id, JobId(request.job_id)))
        )
