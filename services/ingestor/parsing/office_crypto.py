# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Encrypted Office documents (OOXML in an OLE container, and the binary formats)."""

from pathlib import Path

from services.common.errors import DocumentError, Reason

OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_DEFAULT_EXCEL_PASSWORD = "VelvetSweatshop"  # noqa: S105  what Excel tries by itself for workbooks that are "protected"


def is_encrypted(path: Path) -> bool:
    """Whether an Office file in an OLE container is encrypted."""
    import msoffcrypto

    with path.open("rb") as file:
        try:
            return bool(msoffcrypto.OfficeFile(file).is_encrypted())
        except Exception:
            return False  # not a format that can be encrypted, or too damaged to say: its reader will tell


def decrypt(path: Path, target: Path, password: str | None) -> None:
    """Write the decrypted document to `target`. Raises PASSWORD_REQUIRED, UNREADABLE_DOCUMENT."""
    import msoffcrypto
    from msoffcrypto.exceptions import DecryptionError, InvalidKeyError

    for attempt in ([password] if password else []) + [_DEFAULT_EXCEL_PASSWORD]:
        with path.open("rb") as file, target.open("wb") as out:
            try:
                office = msoffcrypto.OfficeFile(file)
                office.load_key(password=attempt)
                office.decrypt(out)
                return
            except (InvalidKeyError, DecryptionError):
                continue
            except Exception as error:
                if attempt == _DEFAULT_EXCEL_PASSWORD:
                    break
                raise DocumentError("the encrypted document is damaged", reason=Reason.UNREADABLE_DOCUMENT) from error
    target.unlink(missing_ok=True)
    raise password_required(given=bool(password))


def password_required(*, given: bool) -> DocumentError:
    said = "the password given does not open it" if given else "it needs its password"
    return DocumentError(f"the document is encrypted; {said}", reason=Reason.PASSWORD_REQUIRED)
