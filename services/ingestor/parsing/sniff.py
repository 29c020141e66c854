"""The kind of a document, from its content; the name only decides between kinds of text."""

import re
import zipfile
from pathlib import Path

from services.common.errors import DocumentError, Reason
from services.domain.blocks import DocumentKind
from services.ingestor.parsing.encoding import decode, looks_binary
from services.ingestor.parsing.office_crypto import OLE_MAGIC, password_required
from services.ingestor.parsing.parser import ParseOptions
from services.ingestor.parsing.text_kinds import text_kind

ALLOWED = "PDF, DOCX, DOC, XLSX, XLS, CSV, Markdown, HTML, plain text, code, PNG, JPEG, WEBP, GIF and TIFF"
_HEAD_BYTES = 256 << 10
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_BIFF = (b"\x09\x00\x04\x00", b"\x09\x02\x06\x00", b"\x09\x04\x06\x00", b"\x09\x08\x08\x00", b"\x09\x08\x10\x00")
_FOREIGN = (
    (b"{\\rtf", "an RTF document"),
    (b"%!PS", "a PostScript document"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"(\xb5/\xfd", "a Zstandard archive"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"ID3", "an audio file"),
    (b"OggS", "an audio file"),
    (b"fLaC", "an audio file"),
    (b"\x1aE\xdf\xa3", "a video"),
    (b"SQLite format 3\x00", "a SQLite database"),
    (b"PAR1", "a Parquet file"),
    (b"BM", "a BMP image"),
    (b"AT&TFORM", "a DjVu document"),
    (b"\xdb\xa5", "a Word document of a version before 6"),
    (b"\x31\xbe", "a Windows Write document"),
    (b"\xffWPC", "a WordPerfect document"),
)
_FOREIGN_TEXT = (b"{\\rtf", b"%!PS")
_PDF_HEADER = re.compile(rb"%PDF-\d")
_PDF_OBJECT = re.compile(rb"\d+\s+\d+\s+obj\b")


def sniff(path: Path, options: ParseOptions) -> DocumentKind:
    """The kind of the file at `path`. Raises DocumentError: EMPTY_FILE, UNSUPPORTED_FORMAT, UNREADABLE_DOCUMENT,
    PASSWORD_REQUIRED (an encrypted Office document: see `unlocking`)."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise DocumentError("the file has no bytes", reason=Reason.EMPTY_FILE)
    if _is_pdf(head):
        return DocumentKind.PDF
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return _zip_kind(path, head)
    if head.startswith(OLE_MAGIC):
        return _ole_kind(path)
    # Most marks are letters, with which a text may begin too: "ID3 builds a decision tree", "GIF89a is ...".
    binary = looks_binary(head)
    if binary and (head.startswith(_IMAGES) or (head.startswith(b"RIFF") and head[8:12] == b"WEBP")):
        return DocumentKind.IMAGE
    if head.startswith(_BIFF):
        return DocumentKind.XLS
    for magic, name in _FOREIGN:
        if head.startswith(magic) and (binary or magic in _FOREIGN_TEXT):
            raise unsupported(name)
    if binary and head[4:8] == b"ftyp":
        raise unsupported("a video or HEIF image")
    if binary:
        raise unsupported("binary data of an unknown format")
    return _text_kind(head, options)


def _is_pdf(head: bytes) -> bool:
    """A header in the first 1,024 bytes (readers allow junk before it), and more of a PDF than a mention of it."""
    header = _PDF_HEADER.search(head[:1024])
    if header is None:
        return False
    before = head[: header.start()].strip(b"\xef\xbb\xbf\x00 \t\r\n")
    return not before or _PDF_OBJECT.search(head) is not None


def unsupported(name: str) -> DocumentError:
    return DocumentError(
        f"the content looks like {name}; supported are {ALLOWED}",
        reason=Reason.UNSUPPORTED_FORMAT,
        metadata={"detected": name, "allowed": ALLOWED},
    )


def _text_kind(head: bytes, options: ParseOptions) -> DocumentKind:
    text = decode(head, options.declared_encoding).text
    start = text.lstrip("\ufeff \t\r\n")[:2000]
    if start.startswith("MIME-Version:") or "Content-Type: multipart/related" in start:
        raise unsupported("a MIME message (MHTML or e-mail)")
    if start.startswith("<?xml") and "<w:wordDocument" in text[:5000]:
        raise unsupported("a Word 2003 XML document (save it as DOCX)")
    return text_kind(text, options.filename)


def _zip_kind(path: Path, head: bytes) -> DocumentKind:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            mime = archive.read("mimetype")[:100].decode("latin-1") if "mimetype" in names else ""
            types = _content_types(archive, names)
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError, EOFError) as error:
        office = b"[Content_Types].xml" in head or b"word/" in head or b"xl/" in head
        if not office:
            raise unsupported("a damaged zip archive") from error
        raise DocumentError("the Office document is damaged or truncated", reason=Reason.UNREADABLE_DOCUMENT) from error
    lower = {name.lower().lstrip("/") for name in names}
    if b"wordprocessingml" in types or "word/document.xml" in lower:
        return DocumentKind.DOCX
    if b"spreadsheetml" in types or b"ms-excel.sheet" in types or lower & {"xl/workbook.xml", "xl/workbook.bin"}:
        return DocumentKind.XLSX
    if b"presentationml" in types or "ppt/presentation.xml" in lower:
        raise unsupported("a PowerPoint presentation")
    if "opendocument" in mime:
        raise unsupported("an OpenDocument file")
    if "epub" in mime:
        raise unsupported("an EPUB book")
    raise unsupported("a zip archive")


def _content_types(archive: zipfile.ZipFile, names: list[str]) -> bytes:
    """The main content types: presentations may embed workbooks, so only overrides of main parts count."""
    if "[Content_Types].xml" not in names:
        return b""
    with archive.open("[Content_Types].xml") as file:
        text = file.read(1 << 20)
    found: list[bytes] = []
    for kind in (b"wordprocessingml", b"spreadsheetml", b"presentationml", b"ms-excel.sheet", b"ms-word.document"):
        if kind in text and b"main+xml" in text[text.index(kind) :]:
            found.append(kind)
    main = [line for line in text.split(b"<") if b"main+xml" in line]
    return b" ".join(main) or b" ".join(found)


def _ole_kind(path: Path) -> DocumentKind:
    import olefile

    try:
        with olefile.OleFileIO(str(path)) as container:
            streams = {entry[0].lower() for entry in container.listdir() if len(entry) == 1}
    except Exception as error:
        raise DocumentError("the Office document is damaged", reason=Reason.UNREADABLE_DOCUMENT) from error
    if "encryptedpackage" in streams:
        raise password_required(given=False)
    if "worddocument" in streams:
        return DocumentKind.DOC
    if streams & {"workbook", "book"}:
        return DocumentKind.XLS
    if "powerpoint document" in streams:
        raise unsupported("a PowerPoint presentation")
    if any(stream.startswith(("__substg", "__properties")) for stream in streams):
        raise unsupported("an Outlook message")
    raise unsupported("an unknown OLE container")
