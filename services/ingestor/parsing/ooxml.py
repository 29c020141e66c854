# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false, reportUnknownParameterType=false
"""Office Open XML packages: parts and relations, read with limits that end zip and XML bombs."""

import posixpath
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import unquote

from lxml import etree

from services.common.errors import DocumentError, Reason
from services.domain.blocks import DocumentMetadata
from services.ingestor.parsing.metadata import clean_title, iso_time, short, tags_from

Element: TypeAlias = Any  # lxml's elements have no types of their own

_MAX_MEMBERS = 20_000
_MAX_RATIO = 300
_RATIO_FREE_BYTES = 32 << 20
_MAX_XML_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """`kind` is the last part of the relation's type: both OOXML dialects end in the same words."""

    kind: str
    target: str
    external: bool


class Package:
    """A zip of parts. Part names have no leading slash and are compared without regard to case."""

    def __init__(self, source: Path | BinaryIO, max_unpacked_bytes: int) -> None:
        try:
            self._zip = zipfile.ZipFile(source)
        except (zipfile.BadZipFile, OSError, ValueError, EOFError) as error:
            raise _damaged("its zip container is broken") from error
        check_zip(self._zip, max_unpacked_bytes)
        self._names = {name.lstrip("/").replace("\\", "/").lower(): name for name in self._zip.namelist()}

    def close(self) -> None:
        self._zip.close()

    def has(self, part: str) -> bool:
        return part.lower() in self._names

    def read(self, part: str) -> bytes:
        """The bytes of a part; empty when there is none. Never more than its directory entry declares."""
        name = self._names.get(part.lower())
        if name is None:
            return b""
        try:
            info = self._zip.getinfo(name)
            if info.file_size > _MAX_XML_BYTES:
                raise _too_large(f"part {part} has {info.file_size} bytes")
            with self._zip.open(info) as file:
                return file.read(info.file_size + 1)
        except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
            raise _damaged(f"part {part} cannot be unpacked") from error

    def xml(self, part: str) -> Element | None:
        """The root of an XML part; None when there is none."""
        data = self.read(part)
        return parse_xml(data, part) if data.strip() else None

    def relations(self, part: str) -> dict[str, Relation]:
        """By id, with targets as part names."""
        folder, name = posixpath.split(part)
        root = self.xml(posixpath.join(folder, "_rels", f"{name}.rels"))
        found: dict[str, Relation] = {}
        for entry in root if root is not None else ():
            target = unquote(entry.get("Target") or "")
            external = entry.get("TargetMode") == "External"
            if not external:
                target = posixpath.normpath(
                    target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target)
                )
            kind = (entry.get("Type") or "").rsplit("/", 1)[-1]
            found[entry.get("Id") or ""] = Relation(kind=kind, target=target, external=external)
        return found

    def main_part(self, fallback: str) -> str:
        for relation in self.relations("").values():
            if relation.kind == "officeDocument" and self.has(relation.target):
                return relation.target
        if self.has(fallback):
            return fallback
        raise _damaged(f"it has no part {fallback}")

    def metadata(self) -> DocumentMetadata:
        """Core properties (ECMA-376, part 2)."""
        try:
            root = self.xml("docProps/core.xml")
        except DocumentError:
            root = None
        values = {local(child): child.text or "" for child in (root if root is not None else ()) if local(child)}
        language = values.get("language", "")[:2].lower()
        return DocumentMetadata(
            title=clean_title(values.get("title")),
            author=short(values.get("creator")),
            language=language if language.isalpha() and len(language) == 2 else "",
            tags=tags_from(values.get("keywords")),
            created_time=iso_time(values.get("created")),
            updated_time=iso_time(values.get("modified")),
        )


def check_zip(archive: zipfile.ZipFile, max_unpacked_bytes: int) -> None:
    """Refuse what would unpack to too much: DOCUMENT_LIMIT. Sizes are the directory's; `read` enforces them."""
    infos = archive.infolist()
    if len(infos) > _MAX_MEMBERS:
        raise _too_large(f"it has {len(infos)} parts")
    total = sum(info.file_size for info in infos)
    if total > max_unpacked_bytes:
        raise _too_large(f"it unpacks to {total} bytes")
    for info in infos:
        if info.flag_bits & 1:
            raise DocumentError("a part of the document is encrypted", reason=Reason.PASSWORD_REQUIRED)
        if info.file_size > _RATIO_FREE_BYTES and info.file_size > _MAX_RATIO * max(1, info.compress_size):
            raise _too_large(f"part {info.filename[:60]!r} unpacks to {info.file_size} bytes from {info.compress_size}")


def parse_xml(data: bytes, part: str) -> Element:
    """A tree without entities of its own: none is expanded, nothing is fetched, depth is bounded by libxml2 (256)."""
    if b"<!ENTITY" in data[:65536] and data[:65536].count(b"<!ENTITY") > 8:
        raise _too_large(f"part {part} defines its own XML entities")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True, remove_pis=True
    )
    try:
        return etree.fromstring(data, parser=parser)
    except etree.XMLSyntaxError as error:
        if "Excessive depth" in str(error) or "huge" in str(error).lower():
            raise _too_large(f"part {part} is nested too deeply or holds too long a text") from error
        return _recovered(data, part, error)


def local(element: Element) -> str:
    """The name without namespace: the dialects differ in namespaces only. Empty for what is no element."""
    tag = element.tag
    return tag.rsplit("}", 1)[-1] if isinstance(tag, str) else ""


def attribute(element: Element, name: str) -> str | None:
    """An attribute by its name without namespace."""
    for key, value in element.attrib.items():
        if key == name or key.endswith("}" + name):
            return value
    return None


def child(element: Element | None, *path: str) -> Element | None:
    """The first descendant along `path` of local names."""
    for name in path:
        if element is None:
            return None
        element = next((entry for entry in element if local(entry) == name), None)
    return element


def child_value(element: Element | None, *path: str) -> str | None:
    found = child(element, *path)
    return attribute(found, "val") if found is not None else None


def switched_on(element: Element | None, *path: str) -> bool:
    """An on/off property (ST_OnOff): there, and not switched off."""
    found = child(element, *path)
    return found is not None and (attribute(found, "val") or "1").lower() not in ("0", "false", "off")


def alternatives(element: Element) -> Iterator[Element]:
    """The children of the one branch of mc:AlternateContent that counts: the first choice, else the fallback."""
    branch = child(element, "Choice")
    if branch is None:
        branch = child(element, "Fallback")
    yield from branch if branch is not None else ()


def _recovered(data: bytes, part: str, error: Exception) -> Element:
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, recover=True, remove_comments=True
    )
    root = etree.fromstring(data, parser=parser)
    if root is None or len(etree.tostring(root)) * 4 < len(data):
        raise _damaged(f"part {part} is no XML") from error
    return root


def _damaged(why: str) -> DocumentError:
    return DocumentError(f"the Office document is damaged: {why}", reason=Reason.UNREADABLE_DOCUMENT)


def _too_large(why: str) -> DocumentError:
    return DocumentError(f"the Office document exceeds the limits for unpacking: {why}", reason=Reason.DOCUMENT_LIMIT)
