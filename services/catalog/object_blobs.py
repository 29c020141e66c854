"""Blobs in an object store (S3 and what speaks its protocol), through obstore."""

# pyright: reportUnknownMemberType=false

import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from services.catalog.blob_settings import BlobSettings
from services.catalog.blobs import CHUNK_BYTES, BlobInfo, Content, check_key, check_sha256, not_found, unavailable
from services.catalog.spool import spooled

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, S3Config

_DELETE_BATCH = 500


def s3_store(settings: BlobSettings) -> "ObjectStore":
    """The bucket (and prefix) that `settings.url` names. What is not set comes from the usual AWS environment."""
    known = {
        "endpoint": settings.endpoint,
        "region": settings.region,
        "access_key_id": settings.access_key_id,
        "secret_access_key": settings.secret_access_key,
    }
    config: S3Config = {key: value for key, value in known.items() if value}  # pyright: ignore[reportAssignmentType]
    client: ClientConfig = {
        "timeout": f"{settings.timeout_s}s",
        "connect_timeout": f"{settings.connect_timeout_s}s",
        "allow_http": settings.endpoint.startswith("http://"),
    }
    return S3Store.from_url(settings.url, config=config, client_options=client)


class ObjectBlobStore:
    """A `BlobStore` over an obstore `store`. What is written passes through a temporary file, which is hashed first."""

    def __init__(self, store: "ObjectStore", *, spool_folder: Path | None = None) -> None:
        self._store = store
        self._spool_folder = spool_folder or Path(tempfile.gettempdir())

    async def put(self, key: str, content: Content, *, sha256: str = "") -> BlobInfo:
        check_key(key)
        async with spooled(self._spool_folder, content) as spool:
            check_sha256(found=spool.sha256, wanted=sha256)
            with _translated(key):
                await obstore.put_async(self._store, key, spool.path)
            return BlobInfo(key=key, size_bytes=spool.size_bytes, sha256=spool.sha256)

    async def chunks(self, key: str) -> AsyncIterator[bytes]:
        with _translated(check_key(key)):
            found = await obstore.get_async(self._store, key)
            stream = found.stream(min_chunk_size=CHUNK_BYTES)
        while True:
            with _translated(key):
                try:
                    chunk = await anext(stream)
                except StopAsyncIteration:
                    return
            yield bytes(chunk)

    @asynccontextmanager
    async def local_path(self, key: str) -> AsyncGenerator[Path]:
        async with spooled(self._spool_folder, self.chunks(key)) as spool:
            yield spool.path

    async def delete_prefix(self, prefix: str) -> None:
        check_key(prefix)
        keys = [prefix]
        async for info in self.list(prefix):
            keys.append(info.key)
            if len(keys) >= _DELETE_BATCH:
                await self._delete(keys)
                keys = []
        await self._delete(keys)

    async def _delete(self, keys: list[str]) -> None:
        if not keys:
            return
        try:
            await obstore.delete_async(self._store, keys)
        except FileNotFoundError:
            return
        except BaseError as error:
            raise unavailable("did not delete") from error

    async def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        stream = obstore.list(self._store, check_key(prefix) if prefix else None, chunk_size=_DELETE_BATCH)
        while True:
            with _translated(prefix):
                try:
                    batch = await anext(stream)
                except StopAsyncIteration:
                    return
            for meta in batch:
                yield BlobInfo(key=meta["path"], size_bytes=meta["size"])


@contextmanager
def _translated(key: str) -> Generator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise not_found(key) from error
    except BaseError as error:
        raise unavailable("cannot be reached or refused the request") from error
