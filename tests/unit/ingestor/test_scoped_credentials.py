"""A credential with a scope cannot walk around it through the calls that show or change whole documents."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from google.protobuf.message import Message
from pergamon.ingestor.v1 import document_pb2, job_pb2, knowledge_base_pb2

from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.ingestor.servicers.documents import DocumentServicer
from services.ingestor.servicers.jobs import JobServicer
from services.ingestor.servicers.knowledge_bases import KnowledgeBaseServicer


class Context:
    """What the edge uses of a call's context."""

    code: grpc.StatusCode | None = None

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("authorization", "Bearer scoped")]

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None: ...

    def set_trailing_metadata(self, trailing_metadata: Any) -> None: ...


SERVICES: dict[str, tuple[Any, Callable[[Edge], Any]]] = {
    # Refused before anything behind the edge is touched.
    "KnowledgeBaseService": (knowledge_base_pb2, lambda edge: KnowledgeBaseServicer(edge, cast("Any", None))),
    "DocumentService": (document_pb2, lambda edge: DocumentServicer(edge, cast("Any", None), cast("Any", None))),
    "JobService": (job_pb2, lambda edge: JobServicer(edge, catalog=cast("Any", SimpleNamespace(jobs=None)))),
}
#: What a search needs to know: which knowledge bases there are.
ALLOWED = {"GetKnowledgeBase", "ListKnowledgeBases"}
METHODS = [
    (service, method.name)
    for service, (messages, _) in SERVICES.items()
    for method in messages.DESCRIPTOR.services_by_name[service].methods
    if method.name not in ALLOWED
]


def scoped_edge(folder: Path) -> Edge:
    digest = hashlib.sha256(b"scoped").hexdigest()
    entry = {"id": "k", "sha256": digest, "tenant": "acme", "role": "admin", "scope": {"author": ["me"]}}
    keys = folder / "keys.json"
    keys.write_text(json.dumps([entry]))
    return Edge(authenticator=Authenticator.load(keys), metrics=Metrics(), clock=SystemClock())


async def code_of(servicer: Any, method: str, request: Message) -> grpc.StatusCode | None:
    context = Context()
    reply = getattr(servicer, method)(request, context)
    if isinstance(reply, AsyncIterator):
        assert [message async for message in reply] == []
    else:
        await reply
    return context.code


@pytest.mark.parametrize(("service", "method"), METHODS)
async def test_ingestor_when_the_credential_has_a_scope_then_permission_denied(
    tmp_path: Path, service: str, method: str
) -> None:
    messages, make = SERVICES[service]
    servicer = make(scoped_edge(tmp_path))
    code = await code_of(servicer, method, getattr(messages, f"{method}Request")())
    assert code is grpc.StatusCode.PERMISSION_DENIED
