"""Documents as callers see them: look, list, change metadata, delete, and read what was parsed."""

import asyncio
import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass

from services.catalog.blobs import BlobNotFound, BlobStore, read_blob
from services.catalog.catalog import Catalog
from services.catalog.types import Document, DocumentState, DocumentVersion, Page
from services.common.errors import InvalidRequest, NotFound, Reason
from services.domain.blocks import BLOCK_SEPARATOR, Block, DocumentMetadata, ParsedPart
from services.domain.ids import DocumentId, KnowledgeBaseId, TenantId
from services.ingestor.blob_keys import MAX_PART_BYTES, part_key
from services.ingestor.parts import decode_part, placed
from services.ingestor.runner import JobRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPage:
    """Blocks in reading order; `page_routes` on the first page only."""

    blocks: tuple[Block, ...]
    next_page_token: str
    page_routes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """Where a listing of blocks goes on: part, block within it, and the character it starts at, for one version."""

    version: int
    part: int = 0
    block: int = 0
    start: int = 0

    def token(self) -> str:
        text = f"{self.version}.{self.part}.{self.block}.{self.start}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def parse(cls, token: str, version: int) -> "_Position":
        """Raises InvalidRequest for a token of another document, or of a version that was replaced meanwhile."""
        if not token:
            return cls(version=version)
        try:
            numbers = [int(n) for n in base64.urlsafe_b64decode(token.encode()).decode().split(".")]
            position = cls(version=numbers[0], part=numbers[1], block=numbers[2], start=numbers[3])
        except (binascii.Error, ValueError, IndexError):
            position = cls(version=-1)
        if position.version != version or min(position.part, position.block, position.start) < 0:
            raise InvalidRequest(
                "page_token was not issued for this document as it is now; start again without one",
                reason=Reason.INVALID_PAGE_TOKEN,
            )
        return position


class Documents:
    def __init__(self, *, catalog: Catalog, blobs: BlobStore, runner: JobRunner) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runner = runner

    async def get(self, tenant: TenantId, document_id: DocumentId) -> Document:
        return await self._catalog.documents.get(tenant, document_id)

    async def list(
        self,
        tenant: TenantId,
        kb_id: KnowledgeBaseId,
        *,
        states: tuple[DocumentState, ...],
        name_prefix: str,
        page_size: int,
        page_token: str,
    ) -> Page[Document]:
        return await self._catalog.documents.list(
            tenant, kb_id, states=states, name_prefix=name_prefix, page_size=page_size, page_token=page_token
        )

    async def update(
        self, tenant: TenantId, document_id: DocumentId, change: Callable[[DocumentMetadata], DocumentMetadata]
    ) -> Document:
        """Change metadata; a job brings it into the index, without parsing or embedding."""
        document = await self._catalog.documents.change_metadata(tenant, document_id, change)
        self._runner.wake()
        return document

    async def delete(self, tenant: TenantId, document_id: DocumentId) -> None:
        """Nothing of it is found once this returns; a job removes what is stored."""
        await self._catalog.documents.delete(tenant, document_id)
        self._runner.wake()

    async def blocks(self, tenant: TenantId, document_id: DocumentId, page_size: int, page_token: str) -> BlockPage:
        """The blocks of the retrievable version. A document without one has none to show: DOCUMENT_NOT_FOUND."""
        document = await self._catalog.documents.get(tenant, document_id)
        if document.live_version is None:
            raise NotFound.document(document_id)
        version = await self._catalog.versions.get(tenant, document.live_version)
        position = _Position.parse(page_token, version.id)
        found: list[Block] = []
        routes = await self._routes(document, version) if not page_token else ()
        while len(found) < page_size:
            part = await self._part(version, position.part)
            if part is None:
                return BlockPage(blocks=tuple(found), next_page_token="", page_routes=routes)
            blocks = part.blocks
            wanted = blocks[position.block : position.block + page_size - len(found)]
            shown = list(placed(wanted, position.start))
            found += shown
            start = shown[-1].end + len(BLOCK_SEPARATOR) if shown else position.start
            end = position.block + len(wanted)
            more = end < len(blocks)
            position = _Position(
                version=version.id,
                part=position.part if more else position.part + 1,
                block=end if more else 0,
                start=start,
            )
        last = position.block == 0 and await self._part(version, position.part) is None
        return BlockPage(blocks=tuple(found), next_page_token="" if last else position.token(), page_routes=routes)

    async def _part(self, version: DocumentVersion, number: int) -> ParsedPart | None:
        """The stretch `number` of a parse, from 0; None after the last one."""
        try:
            content = await read_blob(self._blobs, part_key(version, number), max_bytes=MAX_PART_BYTES)
        except BlobNotFound:
            return None
        return await asyncio.to_thread(decode_part, content)

    async def _routes(self, document: Document, version: DocumentVersion) -> tuple[str, ...]:
        """The path of each page through the parser; none where the format has no pages."""
        routes: list[str] = []
        number = 0
        while len(routes) < document.page_count and (part := await self._part(version, number)) is not None:
            routes += [route.value for route in part.routes]
            number += 1
        return tuple(routes)
