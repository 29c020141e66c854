"""Encrypted documents: opened with the password they came with, stored without it."""

import re
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from services.common.errors import DocumentError, Reason, ServiceError
from services.domain.blocks import DocumentKind
from services.ingestor.parsing.office_crypto import OLE_MAGIC, decrypt, is_encrypted
from services.ingestor.parsing.parser import ParseOptions
from services.ingestor.parsing.sniff import sniff

_OUT_OF_MEMORY = re.compile(r"bad.?alloc|allocate|out of memory|memory allocation", re.I)


def unlock(path: Path, options: ParseOptions, target: Path) -> bool:
    """Check that the file is of a kind we read and opens; where it is encrypted, write an open copy to `target`.

    Returns whether it did. Raises DocumentError: EMPTY_FILE, UNSUPPORTED_FORMAT, PASSWORD_REQUIRED,
    UNREADABLE_DOCUMENT.
    """
    with as_document_errors():
        if _is_locked_office_file(path):
            decrypt(path, target, options.password)
            sniff(target, options)
            return True
        if sniff(path, options) is DocumentKind.PDF:
            from services.ingestor.parsing.pdf_file import unlock_pdf

            return unlock_pdf(path, target, options.password)
        return False


@contextmanager
def readable(path: Path, options: ParseOptions) -> Generator[Path]:
    """The file itself, or a decrypted copy while the context lasts (Office only: PDF is decrypted in memory)."""
    if not _is_locked_office_file(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="pergamon-unlock-") as folder:
        target = Path(folder) / "unlocked"
        decrypt(path, target, options.password)
        yield target


def _is_locked_office_file(path: Path) -> bool:
    with path.open("rb") as file:
        magic = file.read(len(OLE_MAGIC))
    return magic == OLE_MAGIC and is_encrypted(path)


@contextmanager
def as_document_errors() -> Generator[None]:
    """What a parsing library raises on a damaged file is a matter of that file, whatever its type."""
    try:
        yield
    except (ServiceError, MemoryError):
        raise
    except RecursionError as error:
        raise DocumentError("the document is nested too deeply", reason=Reason.DOCUMENT_LIMIT) from error
    except Exception as error:
        if _OUT_OF_MEMORY.search(str(error)):  # how inference libraries say it
            raise MemoryError(str(error)[:200]) from error
        raise DocumentError(
            f"the document is damaged ({type(error).__name__})", reason=Reason.UNREADABLE_DOCUMENT
        ) from error
