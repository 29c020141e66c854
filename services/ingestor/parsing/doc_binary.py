# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
"""The text of a Word binary document, versions 6 to 2003 ([MS-DOC] 2.4.1: text is found through the piece table)."""

import struct
from dataclasses import dataclass
from pathlib import Path

import olefile

from services.common.errors import DocumentError, Reason
from services.ingestor.parsing.office_crypto import password_required

_WORD97, _WORD6 = 0xA5EC, 0xA5DC
_ENCRYPTED, _TABLE_1, _COMPLEX = 0x0100, 0x0200, 0x0004
_COMPRESSED = 0x40000000
_MAX_CHARS = 100_000_000
#: Code pages by primary language of the document, for the 8-bit text of Word 6 and 95.
_CODE_PAGES = {0x19: "cp1251", 0x22: "cp1251", 0x02: "cp1251", 0x23: "cp1251", 0x15: "cp1250", 0x05: "cp1250",
               0x0E: "cp1250", 0x08: "cp1253", 0x1F: "cp1254", 0x0D: "cp1255", 0x01: "cp1256",
               0x11: "cp932", 0x04: "gbk", 0x12: "cp949"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the File Information Block says: `lengths` in characters, of the main text and the stories after it."""

    magic: int
    language: int
    flags: int
    lengths: tuple[int, ...]
    clx: tuple[int, int]


def doc_text(path: Path) -> str:
    """Main text, then footnotes, headers, endnotes and text boxes, with Word's control characters.

    Raises UNREADABLE_DOCUMENT, PASSWORD_REQUIRED.
    """
    try:
        with olefile.OleFileIO(str(path)) as container:
            main = container.openstream("WordDocument").read()
            header = _header(main)
            if header.flags & _ENCRYPTED:
                raise password_required(given=False)
            table = b""
            if header.magic == _WORD97:
                name = "1Table" if header.flags & _TABLE_1 else "0Table"
                table = container.openstream(name).read()
    except (OSError, struct.error, ValueError) as error:
        raise _damaged() from error
    try:
        return _new_text(main, table, header) if header.magic == _WORD97 else _old_text(main, header)
    except (struct.error, IndexError) as error:
        raise _damaged() from error


def _header(main: bytes) -> Header:
    magic, _, _, language = struct.unpack_from("<HHHH", main, 0)
    flags = struct.unpack_from("<H", main, 0x0A)[0]
    if magic == _WORD97:
        lengths = struct.unpack_from("<8i", main, 0x4C)
        # Main, footnotes, headers, (macros, unused), comments, endnotes, text boxes, text boxes of headers.
        clx = struct.unpack_from("<iI", main, 0x1A2)
    elif magic == _WORD6:
        lengths = struct.unpack_from("<8i", main, 0x34)
        clx = struct.unpack_from("<iI", main, 0x160)
    else:
        raise _damaged()
    return Header(
        magic=magic, language=language, flags=flags, lengths=tuple(max(0, n) for n in lengths), clx=(clx[0], clx[1])
    )


def _new_text(main: bytes, table: bytes, header: Header) -> str:
    pieces = _pieces(table[header.clx[0] : header.clx[0] + header.clx[1]])
    parts: list[str] = []
    for start, end, position in pieces:
        count = end - start
        if position & _COMPRESSED:
            at = (position & ~_COMPRESSED) // 2
            parts.append(main[at : at + count].decode("cp1252", "replace"))
        else:
            parts.append(main[position : position + 2 * count].decode("utf-16-le", "replace"))
    return _stories("".join(parts), header.lengths)


def _old_text(main: bytes, header: Header) -> str:
    encoding = _CODE_PAGES.get(header.language & 0xFF, "cp1252")
    if header.flags & _COMPLEX and header.clx[1]:
        pieces = _pieces(main[header.clx[0] : header.clx[0] + header.clx[1]])
        data = b"".join(main[position : position + end - start] for start, end, position in pieces)
    else:
        first, last = struct.unpack_from("<ii", main, 0x18)
        data = main[first:last]
    return _stories(data.decode(encoding, "replace"), header.lengths)


def _pieces(clx: bytes) -> list[tuple[int, int, int]]:
    """(first character, end, file position with its compression bit) of every piece, in text order."""
    at = 0
    while at < len(clx) and clx[at] == 1:  # property lists come first
        at += 3 + struct.unpack_from("<H", clx, at + 1)[0]
    if at >= len(clx) or clx[at] != 2:
        raise _damaged()
    size = struct.unpack_from("<I", clx, at + 1)[0]
    count = (size - 4) // 12
    places = struct.unpack_from(f"<{count + 1}i", clx, at + 5)
    found: list[tuple[int, int, int]] = []
    for index in range(count):
        position = struct.unpack_from("<I", clx, at + 5 + 4 * (count + 1) + 8 * index + 2)[0]
        if 0 <= places[index] < places[index + 1] <= _MAX_CHARS:
            found.append((places[index], places[index + 1], position))
    return found


def _stories(text: str, lengths: tuple[int, ...]) -> str:
    """The stories, each on lines of its own; comments and macros are left out."""
    parts: list[str] = []
    at = 0
    for index, length in enumerate(lengths):
        if length and index not in (3, 4):
            parts.append(text[at : at + length])
        at += length
    return "\r".join(parts) if parts else text


def _damaged() -> DocumentError:
    return DocumentError("the Word document is damaged", reason=Reason.UNREADABLE_DOCUMENT)
