"""Uploads: pieces, hash, progress, and what is repeated."""

import asyncio
import hashlib
import os

import grpc
import pytest
from pergamon.client import (
    AlreadyExistsError,
    DuplicatePolicy,
    InvalidRequestError,
    UnavailableError,
    document_metadata,
)
from pergamon.ingestor.v1 import document_pb2 as pb

from tests.integration.client.scripted import UNAVAILABLE, UPLOADED, Hang, Refusal

PIECE = 256 * 1024
CONTENT = os.urandom(2 * PIECE + 1000)


def content_of(sent: list[pb.UploadDocumentRequest]) -> bytes:
    return b"".join(part.data for part in sent[1:])


async def test_upload_sends_a_header_then_pieces_of_the_content(client, served):
    served.services.upload.will(UPLOADED)
    seen: list[tuple[int, int]] = []
    response = await client.upload_document(
        "kb_1",
        CONTENT,
        name="a.bin",
        metadata=document_metadata(title="A"),
        on_duplicate=DuplicatePolicy.DUPLICATE_POLICY_ALLOW,
        password="open",
        request_id="r1",
        progress=lambda sent, total: seen.append((sent, total)),
    )
    assert response == UPLOADED
    sent = served.services.upload.requests[0]
    assert sent[0].header == pb.UploadHeader(
        knowledge_base_id="kb_1",
        name="a.bin",
        metadata=pb.DocumentMetadata(title="A"),
        on_duplicate=pb.DUPLICATE_POLICY_ALLOW,
        password="open",
        request_id="r1",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )
    assert [len(part.data) for part in sent[1:]] == [PIECE, PIECE, 1000]
    assert content_of(sent) == CONTENT
    assert seen == [(n, len(CONTENT)) for n in (PIECE, 2 * PIECE, len(CONTENT))]


async def test_upload_of_a_path_that_breaks_is_repeated_with_the_same_request_id(client, served, tmp_path):
    path = tmp_path / "policy.pdf"
    path.write_bytes(CONTENT)
    served.services.upload.will(UNAVAILABLE, UPLOADED)
    await client.upload_document("kb_1", path)
    first, second = served.services.upload.requests
    assert first[0].header == second[0].header
    assert first[0].header.name == "policy.pdf"
    assert first[0].header.request_id
    assert content_of(second) == CONTENT


async def test_upload_of_a_pipe_is_sent_once(client, served):
    reading, writing = os.pipe()
    os.write(writing, b"streamed")
    os.close(writing)
    served.services.upload.will(UNAVAILABLE, UPLOADED)
    with os.fdopen(reading, "rb") as pipe, pytest.raises(UnavailableError):
        await client.upload_document("kb_1", pipe, name="a.txt")
    (only,) = served.services.upload.requests
    assert content_of(only) == b"streamed"
    assert only[0].header.sha256 == ""


@pytest.mark.parametrize("_", range(10))  # the answer races with the writes
async def test_upload_that_the_server_refuses_at_its_header_raises_why(client, served, _):
    async def refuse(pieces, context):
        await anext(aiter(pieces))
        await Refusal(code=grpc.StatusCode.ALREADY_EXISTS, reason="DUPLICATE_DOCUMENT").send(context)

    served.services.upload_stream = refuse
    with pytest.raises(AlreadyExistsError) as caught:
        await client.upload_document("kb_1", bytes(8 * 1024 * 1024), name="a.bin")
    assert caught.value.reason == "DUPLICATE_DOCUMENT"


@pytest.mark.parametrize("_", range(10))
async def test_upload_that_the_server_answers_at_its_header_is_done(client, served, _):
    async def answer(pieces, context):
        await anext(aiter(pieces))
        return UPLOADED

    served.services.upload_stream = answer
    assert await client.upload_document("kb_1", bytes(8 * 1024 * 1024), name="a.bin") == UPLOADED


async def test_upload_whose_progress_fails_is_cancelled_and_raises_that(client, served):
    hang = Hang()

    async def wait(pieces, context):
        await hang.wait()

    def fail(sent: int, total: int) -> None:
        raise KeyError("progress")

    served.services.upload_stream = wait
    with pytest.raises(KeyError, match="progress"):
        await client.upload_document("kb_1", b"x", name="a.bin", progress=fail)
    if hang.began.is_set():
        await asyncio.wait_for(hang.cancelled.wait(), 10)


async def test_upload_to_a_server_that_does_not_read_holds_no_more_than_its_window(client, served):
    sent_bytes = 0
    moved = asyncio.Event()
    hang = Hang()

    async def wait(pieces, context):
        await hang.wait()

    def note(sent: int, total: int) -> None:
        nonlocal sent_bytes
        sent_bytes = sent
        moved.set()

    served.services.upload_stream = wait
    upload = asyncio.create_task(client.upload_document("kb_1", bytes(32 * 1024 * 1024), name="a.bin", progress=note))
    await asyncio.wait_for(moved.wait(), 10)
    while moved.is_set():
        moved.clear()
        try:
            await asyncio.wait_for(moved.wait(), 0.3)
        except TimeoutError:
            break
    assert sent_bytes < 16 * 1024 * 1024
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    await asyncio.wait_for(hang.cancelled.wait(), 10)


@pytest.mark.parametrize("_", range(5))
async def test_upload_that_is_refused_with_an_empty_message_beside_the_status_raises_why(client, served, _):
    async def refuse(requests, context):
        await anext(aiter(requests))
        context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
        context.set_details("the file has no bytes")
        return pb.UploadDocumentResponse()

    served.services.upload_stream = refuse
    with pytest.raises(InvalidRequestError, match="no bytes"):
        await client.upload_document("kb_1", b"x" * 3_000_000, name="a")
