# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false, reportUnknownParameterType=false
"""Opening a PDF: repaired where it is damaged, decrypted where we may."""

from pathlib import Path
from typing import Any

import pymupdf

from services.common.errors import DocumentError, Reason
from services.ingestor.parsing.office_crypto import password_required

pymupdf.TOOLS.mupdf_display_errors(False)
pymupdf.TOOLS.mupdf_display_warnings(False)


def open_pdf(path: Path, password: str | None) -> Any:
    """An open pymupdf document with at least one page. Raises UNREADABLE_DOCUMENT, PASSWORD_REQUIRED.

    A document that only restricts what may be done with it opens without a password.
    """
    try:
        document = pymupdf.open(str(path), filetype="pdf")
    except Exception as error:
        raise DocumentError("the PDF is damaged beyond repair", reason=Reason.UNREADABLE_DOCUMENT) from error
    if document.needs_pass and not document.authenticate(password or ""):
        document.close()
        raise password_required(given=bool(password))
    if document.page_count == 0:
        document.close()
        raise DocumentError("the PDF is damaged: it has no pages", reason=Reason.UNREADABLE_DOCUMENT)
    return document


def unlock_pdf(path: Path, target: Path, password: str | None) -> bool:
    """Write a copy without encryption to `target` where a user password is needed; returns whether it was."""
    document = open_pdf(path, password)
    try:
        opens_freely = not _needs_password(path)
        if not opens_freely:
            document.save(str(target), encryption=pymupdf.PDF_ENCRYPT_NONE)
        return not opens_freely
    finally:
        document.close()


def _needs_password(path: Path) -> bool:
    with pymupdf.open(str(path), filetype="pdf") as document:
        return bool(document.needs_pass) and not document.authenticate("")
