"""The methods for knowledge bases."""

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import cached_property

from google.protobuf.field_mask_pb2 import FieldMask

from pergamon.client._core import ServiceMethods, all_pages
from pergamon.ingestor.v1 import knowledge_base_pb2 as pb
from pergamon.ingestor.v1.knowledge_base_pb2_grpc import KnowledgeBaseServiceStub


class KnowledgeBaseMethods(ServiceMethods):
    """Keeps knowledge bases."""

    @cached_property
    def _knowledge_bases(self):
        return KnowledgeBaseServiceStub(self._channels.of("ingestor"))

    async def create_knowledge_base(
        self,
        name: str,
        *,
        description: str = "",
        chunking: pb.Chunking | None = None,
        retrieval: pb.RetrievalDefaults | None = None,
        embedding_model: str = "",
        sparse_model: str = "",
        language: str = "",
        labels: Mapping[str, str] | None = None,
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> pb.KnowledgeBase:
        """Create a knowledge base and return it with all defaults filled in.

        A repeat with the same `request_id` returns the first answer; unset, one is made, which makes retries safe.

        >>> knowledge_base = await client.create_knowledge_base("Policies", labels={"team": "people"})
        >>> knowledge_base.name
        'Policies'
        """
        request = pb.CreateKnowledgeBaseRequest(
            knowledge_base=pb.KnowledgeBase(
                name=name,
                description=description,
                chunking=chunking,
                retrieval=retrieval,
                embedding_model=embedding_model,
                sparse_model=sparse_model,
                language=language,
                labels=labels or {},
            ),
            request_id=request_id or uuid.uuid4().hex,
        )
        method = self._knowledge_bases.CreateKnowledgeBase
        return (await self._calls.unary(method, request, timeout_s=timeout_s)).knowledge_base

    async def get_knowledge_base(self, knowledge_base_id: str, *, timeout_s: float | None = None) -> pb.KnowledgeBase:
        """One knowledge base with its statistics."""
        request = pb.GetKnowledgeBaseRequest(knowledge_base_id=knowledge_base_id)
        method = self._knowledge_bases.GetKnowledgeBase
        return (await self._calls.unary(method, request, timeout_s=timeout_s)).knowledge_base

    def list_knowledge_bases(
        self, *, page_size: int = 0, timeout_s: float | None = None
    ) -> AsyncGenerator[pb.KnowledgeBase, None]:
        """All knowledge bases, oldest first; pages are fetched as they are needed, each within `timeout_s`."""

        async def fetch(token: str) -> tuple[Sequence[pb.KnowledgeBase], str]:
            request = pb.ListKnowledgeBasesRequest(page_size=page_size, page_token=token)
            page = await self._calls.unary(self._knowledge_bases.ListKnowledgeBases, request, timeout_s=timeout_s)
            return page.knowledge_bases, page.next_page_token

        return all_pages(fetch)

    async def update_knowledge_base(
        self,
        knowledge_base_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        retrieval: pb.RetrievalDefaults | None = None,
        labels: Mapping[str, str] | None = None,
        update_mask: Sequence[str] | None = None,
        timeout_s: float | None = None,
    ) -> pb.KnowledgeBase:
        """Change what is given and return the knowledge base as it is then. Not repeated on failure.

        `retrieval` and `labels` are replaced as a whole, unless `update_mask` names single fields, as retrieval.rerank.
        """
        given = {"name": name, "description": description, "retrieval": retrieval, "labels": labels}
        paths = [field for field, value in given.items() if value is not None] if update_mask is None else update_mask
        request = pb.UpdateKnowledgeBaseRequest(
            knowledge_base=pb.KnowledgeBase(
                id=knowledge_base_id,
                name=name or "",
                description=description or "",
                retrieval=retrieval,
                labels=labels or {},
            ),
            update_mask=FieldMask(paths=paths),
        )
        method = self._knowledge_bases.UpdateKnowledgeBase
        return (await self._calls.unary(method, request, timeout_s=timeout_s, repeatable=False)).knowledge_base

    async def delete_knowledge_base(
        self, knowledge_base_id: str, *, timeout_s: float | None = None
    ) -> pb.DeleteKnowledgeBaseResponse:
        """Delete a knowledge base and all in it; `job_id` is the clean-up. Not repeated on failure."""
        request = pb.DeleteKnowledgeBaseRequest(knowledge_base_id=knowledge_base_id)
        method = self._knowledge_bases.DeleteKnowledgeBase
        return await self._calls.unary(method, request, timeout_s=timeout_s, repeatable=False)
