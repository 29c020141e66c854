"""pergamon.ingestor.v1.DocumentService."""

from collections.abc import AsyncIterator

from pergamon.ingestor.v1 import document_pb2 as pb
from pergamon.ingestor.v1 import document_pb2_grpc as stubs

from services.common.auth import Role, require_unscoped
from services.common.errors import FieldViolation, InvalidRequest
from services.common.rpc import Call, Edge, rpc
from services.common.validation import page_size
from services.domain.ids import DocumentId, KnowledgeBaseId
from services.ingestor.convert_document import (
    block_out,
    document_out,
    metadata_change,
    outcome_out,
    states_in,
    upload_in,
)
from services.ingestor.documents import Documents
from services.ingestor.uploads import Uploads

SERVICE = pb.DESCRIPTOR.services_by_name["DocumentService"].full_name
_UPLOAD_TIMEOUT_S = 3600.0


class DocumentServicer(stubs.DocumentServiceServicer):
    def __init__(self, edge: Edge, documents: Documents, uploads: Uploads) -> None:
        self.edge = edge
        self._documents = documents
        self._uploads = uploads

    @rpc(Role.WRITER, timeout_s=_UPLOAD_TIMEOUT_S)
    async def UploadDocument(
        self, call: Call, request: AsyncIterator[pb.UploadDocumentRequest]
    ) -> pb.UploadDocumentResponse:
        require_unscoped(call.principal)
        first = await anext(request, None)
        if first is None or first.WhichOneof("part") != "header":
            raise InvalidRequest.of(FieldViolation(field="header", description="must be the first message"))
        tenant = call.principal.tenant_id
        outcome = await self._uploads.accept(tenant, upload_in(first.header), _content(request))
        return pb.UploadDocumentResponse(
            document=document_out(await self._documents.get(tenant, outcome.document_id)),
            outcome=outcome_out(outcome.result),
            job_id=outcome.job_id or "",
        )

    @rpc(Role.WRITER)
    async def CreateDocument(self, call: Call, request: pb.CreateDocumentRequest) -> pb.CreateDocumentResponse:
        require_unscoped(call.principal)
        tenant = call.principal.tenant_id
        outcome = await self._uploads.accept(tenant, upload_in(request.header), _one(request.data))
        return pb.CreateDocumentResponse(
            document=document_out(await self._documents.get(tenant, outcome.document_id)),
            outcome=outcome_out(outcome.result),
            job_id=outcome.job_id or "",
        )

    @rpc(Role.READER)
    async def GetDocument(self, call: Call, request: pb.GetDocumentRequest) -> pb.GetDocumentResponse:
        require_unscoped(call.principal)
        found = await self._documents.get(call.principal.tenant_id, DocumentId(request.document_id))
        return pb.GetDocumentResponse(document=document_out(found))

    @rpc(Role.READER)
    async def ListDocuments(self, call: Call, request: pb.ListDocumentsRequest) -> pb.ListDocumentsResponse:
        require_unscoped(call.principal)
        page = await self._documents.list(
            call.principal.tenant_id,
            KnowledgeBaseId(request.knowledge_base_id),
            states=states_in(list(request.states), "states"),
            name_prefix=request.name_prefix,
            page_size=page_size(request.page_size),
            page_token=request.page_token,
        )
        found = [document_out(document) for document in page.entries]
        return pb.ListDocumentsResponse(documents=found, next_page_token=page.next_page_token)

    @rpc(Role.WRITER)
    async def UpdateDocument(self, call: Call, request: pb.UpdateDocumentRequest) -> pb.UpdateDocumentResponse:
        require_unscoped(call.principal)
        tenant, document_id = call.principal.tenant_id, DocumentId(request.document_id)
        changed = await self._documents.update(tenant, document_id, metadata_change(request))
        return pb.UpdateDocumentResponse(document=document_out(changed))

    @rpc(Role.WRITER)
    async def DeleteDocument(self, call: Call, request: pb.DeleteDocumentRequest) -> pb.DeleteDocumentResponse:
        require_unscoped(call.principal)
        await self._documents.delete(call.principal.tenant_id, DocumentId(request.document_id))
        return pb.DeleteDocumentResponse()

    @rpc(Role.READER)
    async def ListBlocks(self, call: Call, request: pb.ListBlocksRequest) -> pb.ListBlocksResponse:
        require_unscoped(call.principal)
        page = await self._documents.blocks(
            call.principal.tenant_id,
            DocumentId(request.document_id),
            page_size(request.page_size, default=200),
            request.page_token,
        )
        return pb.ListBlocksResponse(
            blocks=[block_out(block) for block in page.blocks],
            next_page_token=page.next_page_token,
            page_routes=page.page_routes,
        )


async def _content(messages: AsyncIterator[pb.UploadDocumentRequest]) -> AsyncIterator[bytes]:
    async for message in messages:
        if message.WhichOneof("part") != "data":
            raise InvalidRequest.of(FieldViolation(field="data", description="only data may follow the header"))
        yield message.data


async def _one(data: bytes) -> AsyncIterator[bytes]:
    yield data
