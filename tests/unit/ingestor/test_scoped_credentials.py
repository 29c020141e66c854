"""A credential with a scope cannot walk around it through the calls that show or change whole documents."""

import hashlib
import json
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from pergamon.ingestor.v1 import document_pb2 as pb

from services.common.auth import Authenticator
from services.common.clock import SystemClock
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.ingestor.servicers.documents import DocumentServicer


class Context:
    """What the edge uses of a call's context."""

    code: grpc.StatusCode | None = None

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("authorization", "Bearer scoped")]

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None: ...

    def set_trailing_metadata(self, trailing_metadata: Any) -> None: ...


METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["DocumentService"].methods]


@pytest.mark.parametrize("method", METHODS)
async def test_document_service_when_the_credential_has_a_scope_then_permission_denied(
    tmp_path: Path, method: str
) -> None:
    digest = hashlib.sha256(b"scoped").hexdigest()
    entry = {"id": "k", "sha256": digest, "tenant": "acme", "role": "admin", "scope": {"author": ["me"]}}
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps([entry]))
    edge = Edge(authenticator=Authenticator.load(keys), metrics=Metrics(), clock=SystemClock())
    # Refused before anything behind the edge is touched.
    servicer = DocumentServicer(edge, cast("Any", None), cast("Any", None))
    context = Context()
    await getattr(servicer, method)(getattr(pb, f"{method}Request")(), context)
    assert context.code is grpc.StatusCode.PERMISSION_DENIED
