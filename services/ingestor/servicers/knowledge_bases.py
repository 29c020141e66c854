"""pergamon.ingestor.v1.KnowledgeBaseService."""

from functools import partial

from pergamon.ingestor.v1 import knowledge_base_pb2 as pb
from pergamon.ingestor.v1 import knowledge_base_pb2_grpc as stubs

from services.common.auth import Role, require_unscoped
from services.common.rpc import Call, Edge, rpc
from services.common.validation import page_size
from services.domain.ids import KnowledgeBaseId
from services.ingestor.convert_knowledge_base import change, knowledge_base_out, new_knowledge_base
from services.ingestor.knowledge_bases import KnowledgeBases

SERVICE = pb.DESCRIPTOR.services_by_name["KnowledgeBaseService"].full_name


class KnowledgeBaseServicer(stubs.KnowledgeBaseServiceServicer):
    def __init__(self, edge: Edge, knowledge_bases: KnowledgeBases) -> None:
        self.edge = edge
        self._knowledge_bases = knowledge_bases

    @rpc(Role.WRITER)
    async def CreateKnowledgeBase(
        self, call: Call, request: pb.CreateKnowledgeBaseRequest
    ) -> pb.CreateKnowledgeBaseResponse:
        require_unscoped(call.principal)
        made = await self._knowledge_bases.create(call.principal.tenant_id, new_knowledge_base(request))
        return pb.CreateKnowledgeBaseResponse(knowledge_base=knowledge_base_out(made))

    @rpc(Role.READER)
    async def GetKnowledgeBase(self, call: Call, request: pb.GetKnowledgeBaseRequest) -> pb.GetKnowledgeBaseResponse:
        kb_id = KnowledgeBaseId(request.knowledge_base_id)
        found = await self._knowledge_bases.get(call.principal.tenant_id, kb_id)
        return pb.GetKnowledgeBaseResponse(knowledge_base=knowledge_base_out(found))

    @rpc(Role.READER)
    async def ListKnowledgeBases(
        self, call: Call, request: pb.ListKnowledgeBasesRequest
    ) -> pb.ListKnowledgeBasesResponse:
        size = page_size(request.page_size)
        page = await self._knowledge_bases.list(call.principal.tenant_id, size, request.page_token)
        found = [knowledge_base_out(kb) for kb in page.entries]
        return pb.ListKnowledgeBasesResponse(knowledge_bases=found, next_page_token=page.next_page_token)

    @rpc(Role.WRITER)
    async def UpdateKnowledgeBase(
        self, call: Call, request: pb.UpdateKnowledgeBaseRequest
    ) -> pb.UpdateKnowledgeBaseResponse:
        require_unscoped(call.principal)
        kb_id = KnowledgeBaseId(request.knowledge_base.id)
        changed = await self._knowledge_bases.update(call.principal.tenant_id, kb_id, partial(change, request))
        return pb.UpdateKnowledgeBaseResponse(knowledge_base=knowledge_base_out(changed))

    @rpc(Role.WRITER)
    async def DeleteKnowledgeBase(
        self, call: Call, request: pb.DeleteKnowledgeBaseRequest
    ) -> pb.DeleteKnowledgeBaseResponse:
        require_unscoped(call.principal)
        await self._knowledge_bases.delete(call.principal.tenant_id, KnowledgeBaseId(request.knowledge_base_id))
        return pb.DeleteKnowledgeBaseResponse()
