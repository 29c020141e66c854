"""Accepting an upload: bytes to a scratch file, checked, stored, and recorded with its job before the reply."""

import asyncio
import hashlib
import secrets
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from services.catalog.blobs import CHUNK_BYTES
from services.catalog.types import OnDuplicate, UploadOutcome, UploadSpec
from services.common.errors import DocumentError, FieldViolation, InvalidRequest, Reason, ServiceError
from services.domain.blocks import DocumentMetadata
from services.domain.ids import KnowledgeBaseId, TenantId
from services.ingestor.blob_keys import uploads_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """What is said of an upload. `sha256` is checked when given; `password` is used here and never stored."""

    knowledge_base_id: KnowledgeBaseId
    name: str
    metadata: DocumentMetadata
    on_duplicate: OnDuplicate
    request_id: str
    sha256: str
    password: str


class Documents(Protocol):
    """The part of the catalogue that an upload needs."""

    async def accept_upload(self, tenant: TenantId, kb_id: KnowledgeBaseId, spec: UploadSpec) -> UploadOutcome: ...


class KnowledgeBases(Protocol):
    async def require(self, tenant: TenantId, kb_id: KnowledgeBaseId) -> None:
        """Raises NotFound when the knowledge base does not exist for the tenant."""
        ...


class Blobs(Protocol):
    async def put(self, key: str, content: AsyncIterator[bytes]) -> object: ...

    async def delete_prefix(self, prefix: str) -> None: ...


class Inspector(Protocol):
    async def inspect(self, path: Path, name: str, password: str) -> Path:
        """Checks that the content is of a supported kind and can be opened, away from the event loop.

        Returns the file to store: `path`, or a decrypted copy beside it. Raises DocumentError.
        """
        ...


class Runner(Protocol):
    def wake(self) -> None:
        """There is a new job."""
        ...


class Uploads:
    def __init__(
        self,
        *,
        documents: Documents,
        knowledge_bases: KnowledgeBases,
        blobs: Blobs,
        inspector: Inspector,
        runner: Runner,
        scratch: Path,
        max_bytes: int,
    ) -> None:
        self._documents = documents
        self._knowledge_bases = knowledge_bases
        self._blobs = blobs
        self._inspector = inspector
        self._runner = runner
        self._scratch = scratch
        self._max_bytes = max_bytes

    async def accept(self, tenant: TenantId, upload: Upload, pieces: AsyncIterator[bytes]) -> UploadOutcome:
        """Store the content and its job. They survive a crash once this returns; if it raises, nothing is left.

        The exception: a catalogue that does not answer, or a caller that goes away while it is asked. The upload may
        have been accepted all the same, so the bytes stay, and housekeeping removes them if no document has them.
        """
        await self._knowledge_bases.require(tenant, upload.knowledge_base_id)
        self._scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._scratch, prefix="upload-") as folder:
            path = Path(folder) / "original"
            sha256, size = await self._receive(path, pieces)
            _check_content(upload, sha256, size)
            stored = await self._inspector.inspect(path, upload.name, upload.password)
            key = f"{uploads_prefix(tenant, upload.knowledge_base_id)}/{secrets.token_hex(16)}"
            await self._blobs.put(key, _pieces_of(stored))
        return await self._record(tenant, upload, key, sha256, size)

    async def _record(self, tenant: TenantId, upload: Upload, key: str, sha256: str, size: int) -> UploadOutcome:
        spec = UploadSpec(
            name=upload.name,
            sha256=sha256,
            size_bytes=size,
            metadata=upload.metadata,
            request_id=upload.request_id,
            on_duplicate=upload.on_duplicate,
            blob_key=key,
        )
        try:
            outcome = await self._documents.accept_upload(tenant, upload.knowledge_base_id, spec)
        except ServiceError as error:
            if error.error_reason is not Reason.CATALOG_UNAVAILABLE:
                await self._blobs.delete_prefix(key)
            raise
        if outcome.blob_key != key:  # the same bytes again, or a repeat of an upload accepted before
            await self._blobs.delete_prefix(key)
        self._runner.wake()
        return outcome

    async def _receive(self, path: Path, pieces: AsyncIterator[bytes]) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        with path.open("wb") as file:
            async for piece in pieces:
                size += len(piece)
                if size > self._max_bytes:
                    raise DocumentError(
                        f"the file is larger than {self._max_bytes >> 20} MiB, the limit of this server",
                        reason=Reason.FILE_TOO_LARGE,
                        metadata={"limit_bytes": str(self._max_bytes)},
                    )
                await asyncio.to_thread(_append, file, digest, piece)
        return digest.hexdigest(), size


async def _pieces_of(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield piece


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def _append(file: BinaryIO, digest: _Digest, piece: bytes) -> None:
    digest.update(piece)
    file.write(piece)


def _check_content(upload: Upload, sha256: str, size: int) -> None:
    if size == 0:
        raise InvalidRequest.of(
            FieldViolation(field="data", description="the file has no bytes"), reason=Reason.EMPTY_FILE
        )
    if upload.sha256 and upload.sha256 != sha256:
        raise InvalidRequest.of(
            FieldViolation(field="header.sha256", description=f"announced {upload.sha256}, received {sha256}"),
            reason=Reason.CHECKSUM_MISMATCH,
        )
