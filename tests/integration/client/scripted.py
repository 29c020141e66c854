"""Small servicers that answer as a test tells them, a server for them, and time that passes only when it is slept."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from pergamon.client import Timing
from pergamon.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from pergamon.ingestor.v1 import (
    document_pb2,
    document_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    knowledge_base_pb2,
    knowledge_base_pb2_grpc,
)
from pergamon.reranker.v1 import reranker_pb2, reranker_pb2_grpc
from pergamon.retriever.v1 import retriever_pb2, retriever_pb2_grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that is an error."""

    code: grpc.StatusCode
    reason: str = ""
    message: str = "refused"
    retry_after_s: float | None = None

    async def send(self, context) -> None:
        details = []
        if self.reason:
            details.append(error_details_pb2.ErrorInfo(reason=self.reason, domain="pergamon.dev"))
        if self.retry_after_s is not None:
            delay = Duration()
            delay.FromMilliseconds(int(self.retry_after_s * 1000))
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        for detail in details:
            packed = Any()
            packed.Pack(detail)
            status.details.append(packed)
        trailers = (("grpc-status-details-bin", status.SerializeToString()),) if details else ()
        await context.abort(self.code, self.message, trailers)


UNAVAILABLE = Refusal(code=grpc.StatusCode.UNAVAILABLE)


class Hang:
    """An answer that never comes; `began` and `cancelled` tell how far it got."""

    def __init__(self) -> None:
        self.began, self.cancelled = asyncio.Event(), asyncio.Event()

    async def wait(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


@dataclass
class Script:
    """Answers in the order they are given out, and what was asked. The last answer is given for ever."""

    answers: deque = field(default_factory=deque)
    requests: list = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)

    def will(self, *answers) -> "Script":
        self.answers.extend(answers)
        return self

    def take(self, request, context):
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        return self.answers[0] if len(self.answers) == 1 else self.answers.popleft()

    async def unary(self, request, context):
        return await given(self.take(request, context), request, context)

    async def stream(self, request, context) -> AsyncIterator:
        for part in self.take(request, context):
            yield await given(part, request, context)


async def given(answer, request, context):
    """Send the refusal, hang, compute, or return a message."""
    match answer:
        case Refusal():
            await answer.send(context)
        case Hang():
            await answer.wait()
    return answer(request) if callable(answer) else answer


def scripted(base: type, **methods: Callable) -> object:
    """A servicer of type `base` with these methods."""
    return type("Scripted", (base,), {name: staticmethod(method) for name, method in methods.items()})()


@dataclass
class Services:
    """A script for each method that tests use."""

    embed: Script = field(default_factory=Script)
    tokenizer: Script = field(default_factory=Script)
    embedding_models: Script = field(default_factory=Script)
    rerank: Script = field(default_factory=Script)
    search: Script = field(default_factory=Script)
    retrieve: Script = field(default_factory=Script)
    create_kb: Script = field(default_factory=Script)
    update_kb: Script = field(default_factory=Script)
    delete_kb: Script = field(default_factory=Script)
    list_kbs: Script = field(default_factory=Script)
    list_documents: Script = field(default_factory=Script)
    list_blocks: Script = field(default_factory=Script)
    upload: Script = field(default_factory=Script)
    get_job: Script = field(default_factory=Script)
    watch: Script = field(default_factory=Script)
    cancel_job: Script = field(default_factory=Script)
    embed_stream: Callable | None = None
    rerank_stream: Callable | None = None
    upload_stream: Callable | None = None

    async def _upload(self, pieces, context):
        if self.upload_stream:
            return await self.upload_stream(pieces, context)
        return await self.upload.unary([piece async for piece in pieces], context)

    async def _embed_stream(self, requests, context):
        async for reply in self.embed_stream(requests, context):
            yield reply

    async def _rerank_stream(self, requests, context):
        async for reply in self.rerank_stream(requests, context):
            yield reply

    def add_to(self, server: aio.Server) -> None:
        embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(
            scripted(
                embedder_pb2_grpc.EmbedderServiceServicer,
                Embed=self.embed.unary,
                EmbedStream=self._embed_stream,
                GetTokenizer=self.tokenizer.stream,
                ListModels=self.embedding_models.unary,
            ),
            server,
        )
        reranker_pb2_grpc.add_RerankerServiceServicer_to_server(
            scripted(
                reranker_pb2_grpc.RerankerServiceServicer, Rerank=self.rerank.unary, RerankStream=self._rerank_stream
            ),
            server,
        )
        retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(
            scripted(
                retriever_pb2_grpc.RetrieverServiceServicer, Search=self.search.unary, Retrieve=self.retrieve.unary
            ),
            server,
        )
        knowledge_base_pb2_grpc.add_KnowledgeBaseServiceServicer_to_server(
            scripted(
                knowledge_base_pb2_grpc.KnowledgeBaseServiceServicer,
                CreateKnowledgeBase=self.create_kb.unary,
                UpdateKnowledgeBase=self.update_kb.unary,
                DeleteKnowledgeBase=self.delete_kb.unary,
                ListKnowledgeBases=self.list_kbs.unary,
            ),
            server,
        )
        document_pb2_grpc.add_DocumentServiceServicer_to_server(
            scripted(
                document_pb2_grpc.DocumentServiceServicer,
                UploadDocument=self._upload,
                ListDocuments=self.list_documents.unary,
                ListBlocks=self.list_blocks.unary,
            ),
            server,
        )
        job_pb2_grpc.add_JobServiceServicer_to_server(
            scripted(
                job_pb2_grpc.JobServiceServicer,
                GetJob=self.get_job.unary,
                WatchJob=self.watch.stream,
                CancelJob=self.cancel_job.unary,
            ),
            server,
        )


@dataclass
class Served:
    """A running server: its address and its scripts."""

    target: str
    services: Services


@asynccontextmanager
async def serving(services: Services | None = None):
    """A server in this event loop, at a free port of the loopback."""
    services = services or Services()
    server = aio.server(options=(("grpc.max_receive_message_length", 1024 * 1024),))
    services.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Served(target=f"127.0.0.1:{port}", services=services)
    finally:
        await server.stop(grace=None)


class FakeTime:
    """A clock that only sleeping moves; chance is fixed."""

    def __init__(self, chance: float = 0.0) -> None:
        self.now_s, self.slept = 0.0, []
        self.timing = Timing(now=lambda: self.now_s, sleep=self._sleep, chance=lambda: chance)

    async def _sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        self.now_s += duration_s


def job(state: job_pb2.JobState.ValueType, stage: str = "") -> job_pb2.WatchJobResponse:
    return job_pb2.WatchJobResponse(job=job_pb2.Job(id="job_1", state=state, stage=stage))


EMBEDDED = embedder_pb2.EmbedResponse(dense_model="m")
UPLOADED = document_pb2.UploadDocumentResponse(job_id="job_1")
RERANKED = reranker_pb2.RerankResponse(model="m")
FOUND = retriever_pb2.SearchResponse(total_ms=1)
CREATED = knowledge_base_pb2.CreateKnowledgeBaseResponse(knowledge_base=knowledge_base_pb2.KnowledgeBase(id="kb_1"))
