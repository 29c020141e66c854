"""The methods for documents, but for their upload."""

from collections.abc import AsyncGenerator, Sequence
from functools import cached_property

from google.protobuf.field_mask_pb2 import FieldMask

from pergamon.client._core import ServiceMethods, all_pages
from pergamon.ingestor.v1 import document_pb2 as pb
from pergamon.ingestor.v1.document_pb2_grpc import DocumentServiceStub


class DocumentMethods(ServiceMethods):
    """Shows and changes documents."""

    @cached_property
    def _documents(self):
        return DocumentServiceStub(self._channels.of("ingestor"))

    async def get_document(self, document_id: str, *, timeout_s: float | None = None) -> pb.Document:
        """One document."""
        request = pb.GetDocumentRequest(document_id=document_id)
        return (await self._calls.unary(self._documents.GetDocument, request, timeout_s=timeout_s)).document

    def list_documents(
        self,
        knowledge_base_id: str,
        *,
        states: Sequence[pb.DocumentState.ValueType] = (),
        name_prefix: str = "",
        page_size: int = 0,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[pb.Document, None]:
        """Documents of a knowledge base, oldest first; pages are fetched as needed, each within `timeout_s`.

        >>> [document.name async for document in client.list_documents("kb_1")]
        ['policy.pdf', 'faq.md']
        """

        async def fetch(token: str) -> tuple[Sequence[pb.Document], str]:
            request = pb.ListDocumentsRequest(
                knowledge_base_id=knowledge_base_id,
                page_size=page_size,
                page_token=token,
                states=states,
                name_prefix=name_prefix,
            )
            page = await self._calls.unary(self._documents.ListDocuments, request, timeout_s=timeout_s)
            return page.documents, page.next_page_token

        return all_pages(fetch)

    async def update_document(
        self,
        document_id: str,
        metadata: pb.DocumentMetadata,
        *,
        update_mask: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> pb.UpdateDocumentResponse:
        """Change metadata without parsing or embedding again. Not repeated on failure.

        `update_mask` names the fields to change, as title or labels; empty: all of them. The response holds the
        document as it is now; filters of searches see the change moments later.
        """
        mask = FieldMask(paths=update_mask) if update_mask else None
        request = pb.UpdateDocumentRequest(document_id=document_id, metadata=metadata, update_mask=mask)
        method = self._documents.UpdateDocument
        return await self._calls.unary(method, request, timeout_s=timeout_s, repeatable=False)

    async def delete_document(self, document_id: str, *, timeout_s: float | None = None) -> pb.DeleteDocumentResponse:
        """Delete a document: no search finds it once this returns. Not repeated on failure."""
        request = pb.DeleteDocumentRequest(document_id=document_id)
        method = self._documents.DeleteDocument
        return await self._calls.unary(method, request, timeout_s=timeout_s, repeatable=False)

    def list_blocks(
        self, document_id: str, *, page_size: int = 0, timeout_s: float | None = None
    ) -> AsyncGenerator[pb.Block, None]:
        """What was read from a document, in reading order; pages are fetched as needed, each within `timeout_s`."""

        async def fetch(token: str) -> tuple[Sequence[pb.Block], str]:
            page = await self._block_page(document_id, page_size, token, timeout_s)
            return page.blocks, page.next_page_token

        return all_pages(fetch)

    async def get_page_routes(self, document_id: str, *, timeout_s: float | None = None) -> list[str]:
        """The path each page of a document took through the parser, from the first: TEXT, TABLE, OCR or EMPTY."""
        return list((await self._block_page(document_id, 1, "", timeout_s)).page_routes)

    async def _block_page(
        self, document_id: str, page_size: int, token: str, timeout_s: float | None
    ) -> pb.ListBlocksResponse:
        request = pb.ListBlocksRequest(document_id=document_id, page_size=page_size, page_token=token)
        return await self._calls.unary(self._documents.ListBlocks, request, timeout_s=timeout_s)
