"""One suite for every blob store: a folder, and an S3-compatible server over HTTP."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from services.catalog.blob_settings import BlobSettings, open_blob_store
from services.catalog.blobs import BlobNotFound, BlobStore, read_blob
from services.common.errors import Reason, ServiceError, Unavailable

KEY = "acme/kb_1/doc_1/1/original.pdf"
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    moto = pytest.importorskip("moto.server", reason="the package moto[server] is not installed")
    pytest.importorskip("obstore", reason="the extra objectstore is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def s3_settings(endpoint: str, bucket: str, spool_folder: Path) -> BlobSettings:
    return BlobSettings(
        url=f"s3://{bucket}/some/prefix",
        endpoint=endpoint,
        region="us-east-1",
        access_key_id="test",
        secret_access_key="test",
        spool_folder=spool_folder,
    )


@pytest.fixture(params=["folder", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "folder":
        return await open_blob_store(BlobSettings(url=f"file://{tmp_path}/blobs"))
    endpoint: str = request.getfixturevalue("s3_endpoint")
    bucket = f"b{uuid4().hex}"
    async with httpx.AsyncClient() as client:
        (await client.put(f"{endpoint}/{bucket}")).raise_for_status()
    return await open_blob_store(s3_settings(endpoint, bucket, tmp_path))


async def parts(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def keys(store: BlobStore, prefix: str = "") -> list[str]:
    return sorted([info.key async for info in store.list(prefix)])


def leftovers(folder: Path) -> list[Path]:
    """Temporary files of uploads."""
    return list(folder.rglob("put-*"))


async def test_put_when_bytes_or_stream_then_read_back_in_chunks(store: BlobStore) -> None:
    large = bytes(range(256)) * (MEGABYTE // 64)
    info = await store.put(KEY, parts(large[:5], large[5:MEGABYTE], b"", large[MEGABYTE:]))
    assert (info.size_bytes, info.sha256) == (4 * MEGABYTE, hashlib.sha256(large).hexdigest())
    chunks = [chunk async for chunk in store.chunks(KEY)]
    assert b"".join(chunks) == large
    assert len(chunks) > 1
    await store.put(KEY, b"small", sha256=hashlib.sha256(b"small").hexdigest())
    assert await read_blob(store, KEY, max_bytes=5) == b"small"


async def test_put_when_larger_than_a_part_then_read_back(store: BlobStore) -> None:
    large = b"0123456789abcdef" * (MEGABYTE // 16) * 11
    await store.put(KEY, large)
    assert await read_blob(store, KEY, max_bytes=len(large)) == large


async def test_put_when_empty_then_an_empty_blob(store: BlobStore) -> None:
    await store.put(KEY, b"")
    assert await read_blob(store, KEY, max_bytes=0) == b""


async def test_put_when_the_checksum_differs_then_the_old_blob_stays(store: BlobStore, tmp_path: Path) -> None:
    await store.put(KEY, b"old")
    with pytest.raises(ServiceError) as raised:
        await store.put(KEY, parts(b"n", b"ew"), sha256="0" * 64)
    assert raised.value.error_reason is Reason.CHECKSUM_MISMATCH
    assert await read_blob(store, KEY, max_bytes=10) == b"old"
    assert leftovers(tmp_path) == []


async def test_put_when_the_stream_breaks_then_nothing_is_stored(store: BlobStore, tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * MEGABYTE
        raise ConnectionAbortedError("the caller went away")

    with pytest.raises(ConnectionAbortedError):
        await store.put(KEY, broken())
    assert await keys(store) == []
    assert leftovers(tmp_path) == []


async def test_local_path_when_open_then_a_file_with_the_bytes(store: BlobStore) -> None:
    await store.put(KEY, b"content")
    async with store.local_path(KEY) as path:
        assert path.read_bytes() == b"content"
    assert await read_blob(store, KEY, max_bytes=10) == b"content"


async def test_read_when_the_blob_is_missing_then_not_found(store: BlobStore) -> None:
    with pytest.raises(BlobNotFound):
        await read_blob(store, KEY, max_bytes=1)
    with pytest.raises(BlobNotFound):
        async with store.local_path(KEY):
            pass


async def test_read_when_larger_than_allowed_then_refused(store: BlobStore) -> None:
    await store.put(KEY, b"content")
    with pytest.raises(ValueError, match="more than 3 bytes"):
        await read_blob(store, KEY, max_bytes=3)


async def test_delete_prefix_when_neighbours_share_letters_then_only_whole_segments(store: BlobStore) -> None:
    stored = ["acme/kb_1/a/1/x", "acme/kb_1/a/2/y", "acme/kb_1/ab/1/x", "acme/kb_2/a/1/x"]
    for key in stored:
        await store.put(key, b"x")
    assert await keys(store, "acme/kb_1") == stored[:3]
    assert await keys(store, "acme/kb_1/a") == stored[:2]
    await store.delete_prefix("acme/kb_1/a")
    assert await keys(store) == stored[2:]
    await store.delete_prefix("acme/kb_1/a")
    await store.delete_prefix("acme/kb_1/ab/1/x")
    assert await keys(store) == stored[3:]
    await store.delete_prefix("acme")
    assert await keys(store) == []


async def test_put_when_the_prefix_is_deleted_meanwhile_then_every_put_ends_stored_or_deleted(store: BlobStore) -> None:
    async def puts() -> None:
        for number in range(20):
            await store.put(f"acme/kb/{number % 3}/x", b"x")

    async def deletes() -> None:
        for number in range(20):
            await store.delete_prefix(f"acme/kb/{number % 3}")

    await asyncio.gather(puts(), deletes())
    await store.put("acme/kb/0/x", b"x")
    assert "acme/kb/0/x" in await keys(store)


@pytest.mark.parametrize(
    "key",
    ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a/.hidden", "a\\b", "a\x00", "a b", "ä", "x" * 700],
)
async def test_keys_when_they_could_leave_the_root_then_refused(store: BlobStore, key: str) -> None:
    with pytest.raises(ValueError, match="not valid"):
        await store.put(key, b"x")
    with pytest.raises(ValueError, match="not valid"):
        await read_blob(store, key, max_bytes=1)
    with pytest.raises(ValueError, match="not valid"):
        await store.delete_prefix(key)
    with pytest.raises(ValueError, match="not valid"):
        async with store.local_path(key):
            pass


async def test_s3_when_nobody_listens_then_unavailable(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="the extra objectstore is not installed")
    from obstore.store import S3Store

    from services.catalog.object_blobs import ObjectBlobStore

    unreachable = S3Store(
        "bucket",
        endpoint="http://127.0.0.1:9",
        region="us-east-1",
        access_key_id="x",
        secret_access_key="x",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(Unavailable) as raised:
        await ObjectBlobStore(unreachable, spool_folder=tmp_path).put(KEY, b"x")
    assert raised.value.error_reason is Reason.BLOB_STORE_UNAVAILABLE
