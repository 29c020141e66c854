"""What must be told of the blob store, and opening the one it names."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from services.catalog.blobs import BlobStore
from services.common.errors import Reason, ServiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobSettings:
    """`url` is `file:///folder` or `s3://bucket/prefix`. Empty fields are taken from the usual AWS environment.

    `spool_folder` is where bytes on their way to or from an object store lie; None: the system's temporary folder.
    """

    url: str
    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)
    connect_timeout_s: int = 5
    timeout_s: int = 120
    spool_folder: Path | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("file:///", "s3://")):
            raise ValueError("the blob store's url must start with file:/// or s3://")


async def open_blob_store(settings: BlobSettings) -> BlobStore:
    """Errors: EXTRA_NOT_INSTALLED, BLOB_STORE_UNAVAILABLE."""
    if settings.url.startswith("file:///"):
        from services.catalog.folder_blobs import FolderBlobStore

        folder = FolderBlobStore(Path(unquote(urlsplit(settings.url).path)))
        await folder.open()
        return folder
    try:
        from services.catalog.object_blobs import ObjectBlobStore, s3_store
    except ImportError as error:
        raise ServiceError(
            "an object store needs the extra `objectstore`: pip install 'pergamon-server[objectstore]'",
            reason=Reason.EXTRA_NOT_INSTALLED,
        ) from error
    return ObjectBlobStore(s3_store(settings), spool_folder=settings.spool_folder)
