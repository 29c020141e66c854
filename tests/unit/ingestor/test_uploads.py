"""Accepting an upload: durable when it returns, and nothing left behind when it fails."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.catalog.types import KnowledgeBase, OnDuplicate, UploadOutcome, UploadResult, UploadSpec
from services.common.errors import DocumentError, NotFound, Reason, ServiceError, Unavailable
from services.domain.blocks import DocumentMetadata
from services.domain.ids import KnowledgeBaseId, TenantId, new_id
from services.ingestor.uploads import Upload, Uploads
from tests.helpers.ingestion import TENANT, Workshop

_LIMIT = 1000


class Inspector:
    """Accepts all, unless told to refuse or to store another file."""

    def __init__(self) -> None:
        self.refusal: Exception | None = None
        self.unlocked: bytes | None = None

    async def inspect(self, path: Path, name: str, password: str) -> Path:
        if self.refusal is not None:
            raise self.refusal
        if self.unlocked is None:
            return path
        other = path.with_name("unlocked")
        other.write_bytes(self.unlocked)
        return other


class KnowledgeBases:
    def __init__(self, shop: Workshop) -> None:
        self._shop = shop

    async def require(self, tenant: TenantId, kb_id: KnowledgeBaseId) -> None:
        await self._shop.catalog.knowledge_bases.get(tenant, kb_id)


class Runner:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


class Documents:
    """The catalogue's, with a failure to order, before or after it has accepted."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self.before: BaseException | None = None
        self.after: BaseException | None = None

    async def accept_upload(self, tenant: TenantId, kb_id: KnowledgeBaseId, spec: UploadSpec) -> UploadOutcome:
        if self.before is not None:
            raise self.before
        outcome = await self._shop.catalog.documents.accept_upload(tenant, kb_id, spec)
        if self.after is not None:
            raise self.after
        return outcome


class Desk:
    """Uploads over a real catalogue and blobs."""

    def __init__(self, shop: Workshop, kb: KnowledgeBase) -> None:
        self.shop, self.kb = shop, kb
        self.documents, self.inspector, self.runner = Documents(shop), Inspector(), Runner()
        self.scratch = shop.settings.data_dir / "scratch"
        self.uploads = Uploads(
            documents=self.documents,
            knowledge_bases=KnowledgeBases(shop),
            blobs=shop.blobs,
            inspector=self.inspector,
            runner=self.runner,
            scratch=self.scratch,
            max_bytes=_LIMIT,
        )

    async def accept(self, *pieces: bytes, **changes: Any) -> UploadOutcome:
        upload = Upload(
            knowledge_base_id=self.kb.id,
            name="a.txt",
            metadata=DocumentMetadata(),
            on_duplicate=OnDuplicate.REJECT,
            request_id="",
            sha256="",
            password="",
        )
        return await self.uploads.accept(TENANT, replace(upload, **changes), _stream(*pieces))

    async def blobs(self) -> list[str]:
        return [blob.key async for blob in self.shop.blobs.list()]

    @property
    def scratch_files(self) -> list[Path]:
        return list(self.scratch.rglob("*")) if self.scratch.exists() else []

    async def documents_there(self) -> int:
        return len((await self.shop.catalog.documents.list(TENANT, self.kb.id)).entries)


async def _stream(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _broken(first: bytes, error: BaseException) -> AsyncIterator[bytes]:
    yield first
    raise error


@pytest.fixture
async def desk(shop: Workshop) -> Desk:
    return Desk(shop, await shop.kb())


async def test_accept_when_all_is_well_then_the_bytes_are_stored_once_and_the_runner_is_woken(desk: Desk) -> None:
    outcome = await desk.accept(b"one ", b"two")
    assert await desk.blobs() == [outcome.blob_key]
    assert [part async for part in desk.shop.blobs.chunks(outcome.blob_key)] == [b"one two"]
    assert (desk.scratch_files, desk.runner.woken) == ([], 1)


async def test_accept_when_the_document_was_locked_then_the_unlocked_copy_is_stored(desk: Desk) -> None:
    desk.inspector.unlocked = b"open"
    outcome = await desk.accept(b"locked", password="sesame")
    assert [part async for part in desk.shop.blobs.chunks(outcome.blob_key)] == [b"open"]


@pytest.mark.parametrize("repeat", ["same bytes", "same request"])
async def test_accept_when_it_is_a_repeat_then_the_second_copy_does_not_stay(desk: Desk, repeat: str) -> None:
    request_id = "r" if repeat == "same request" else ""
    first = await desk.accept(b"text", request_id=request_id)
    second = await desk.accept(b"text", request_id=request_id)
    assert await desk.blobs() == [first.blob_key]
    assert second.document_id == first.document_id
    assert second.result is (UploadResult.NEW if request_id else UploadResult.UNCHANGED)


@pytest.mark.parametrize(
    ("pieces", "changes", "reason"),
    [
        ((b"",), {}, Reason.EMPTY_FILE),
        ((), {}, Reason.EMPTY_FILE),
        ((b"x" * 600, b"x" * 600), {}, Reason.FILE_TOO_LARGE),
        ((b"text",), {"sha256": "0" * 64}, Reason.CHECKSUM_MISMATCH),
        ((b"text",), {"knowledge_base_id": KnowledgeBaseId(new_id("kb"))}, Reason.KNOWLEDGE_BASE_NOT_FOUND),
    ],
)
async def test_accept_when_it_is_refused_then_nothing_is_left(
    desk: Desk, pieces: tuple[bytes, ...], changes: dict[str, Any], reason: Reason
) -> None:
    with pytest.raises(ServiceError) as refused:
        await desk.accept(*pieces, **changes)
    assert refused.value.error_reason is reason
    assert (await desk.blobs(), desk.scratch_files, desk.runner.woken) == ([], [], 0)


async def test_accept_when_the_content_is_refused_then_nothing_is_left(desk: Desk) -> None:
    desk.inspector.refusal = DocumentError("a program", reason=Reason.UNSUPPORTED_FORMAT)
    with pytest.raises(DocumentError):
        await desk.accept(b"\x7fELF")
    assert (await desk.blobs(), desk.scratch_files, await desk.documents_there()) == ([], [], 0)


async def test_accept_when_the_bytes_are_a_duplicate_then_only_the_first_copy_stays(desk: Desk) -> None:
    first = await desk.accept(b"text")
    with pytest.raises(ServiceError) as refused:
        await desk.accept(b"text", name="b.txt")
    assert refused.value.error_reason is Reason.DUPLICATE_DOCUMENT
    assert (await desk.blobs(), desk.scratch_files) == ([first.blob_key], [])


@pytest.mark.parametrize("error", [ConnectionError("gone"), asyncio.CancelledError()])
async def test_accept_when_the_caller_goes_away_in_the_middle_then_nothing_is_left(
    desk: Desk, error: BaseException
) -> None:
    upload = Upload(
        knowledge_base_id=desk.kb.id, name="a.txt", metadata=DocumentMetadata(), on_duplicate=OnDuplicate.REJECT,
        request_id="", sha256="", password="",
    )  # fmt: skip
    with pytest.raises(type(error)):
        await desk.uploads.accept(TENANT, upload, _broken(b"half", error))
    assert (await desk.blobs(), desk.scratch_files, await desk.documents_there()) == ([], [], 0)


async def test_accept_when_the_knowledge_base_goes_meanwhile_then_nothing_is_left(desk: Desk) -> None:
    desk.documents.before = NotFound.knowledge_base(desk.kb.id)
    with pytest.raises(NotFound):
        await desk.accept(b"text")
    assert (await desk.blobs(), desk.scratch_files) == ([], [])


async def test_accept_when_the_catalogue_accepted_but_did_not_answer_then_the_bytes_are_kept(desk: Desk) -> None:
    desk.documents.after = Unavailable("too slow", reason=Reason.CATALOG_UNAVAILABLE)
    with pytest.raises(Unavailable):
        await desk.accept(b"text")
    job = await desk.shop.lease()
    assert job.version is not None
    version = await desk.shop.catalog.versions.get(TENANT, job.version)
    assert await desk.blobs() == [version.blob_key]
    assert desk.scratch_files == []
