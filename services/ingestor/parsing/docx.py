"""Word documents (DOCX, both OOXML dialects): text in reading order, all changes accepted."""

import io
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from services.common.errors import DocumentError
from services.domain.blocks import ParseWarning
from services.ingestor.parsing.docx_styles import Numbering, Styles
from services.ingestor.parsing.docx_walk import Walk
from services.ingestor.parsing.ooxml import Element, Package, attribute, child, local
from services.ingestor.parsing.parser import ParseOptions, Reading

_MAX_NESTED_DOCUMENTS = 2


def read_docx(path: Path, options: ParseOptions) -> Reading:
    """Raises UNREADABLE_DOCUMENT, DOCUMENT_LIMIT."""
    return read_package(path, options, depth=0)


def read_package(source: Path | BinaryIO, options: ParseOptions, *, depth: int) -> Reading:
    package = Package(source, options.max_unpacked_bytes)
    try:
        document = DocxDocument.open(package)
        warnings: list[ParseWarning] = []

        def embedded(relation_id: str) -> Reading | None:
            return _embedded(document, relation_id, options, depth, warnings)

        walk = Walk(document, embedded)
        blocks = walk.whole()
        metadata = package.metadata()
    finally:
        package.close()
    return Reading(blocks=tuple(blocks), metadata=metadata, warnings=tuple(warnings))


@dataclass(slots=True, kw_only=True)
class DocxDocument:
    """The parts of a document that its walk needs."""

    package: Package
    part: str
    body: Element
    styles: Styles
    numbering: Numbering
    footnotes: dict[str, Element] = field(default_factory=dict[str, Element])
    endnotes: dict[str, Element] = field(default_factory=dict[str, Element])

    @classmethod
    def open(cls, package: Package) -> "DocxDocument":
        part = package.main_part("word/document.xml")
        root = package.xml(part)
        body = child(root, "body")
        if body is None:
            raise DocumentError("the Word document has no body")
        by_kind = {
            relation.kind: relation.target for relation in package.relations(part).values() if not relation.external
        }
        return cls(
            package=package,
            part=part,
            body=body,
            styles=Styles.of(package.xml(by_kind.get("styles", ""))),
            numbering=Numbering(package, by_kind.get("numbering", "")),
            footnotes=_notes(package.xml(by_kind.get("footnotes", ""))),
            endnotes=_notes(package.xml(by_kind.get("endnotes", ""))),
        )

    def related(self, relation_id: str) -> Element | None:
        """The root of the part behind a relation, as a header or footer."""
        relation = self.package.relations(self.part).get(relation_id)
        return self.package.xml(relation.target) if relation is not None and not relation.external else None


def _notes(root: Element | None) -> dict[str, Element]:
    found: dict[str, Element] = {}
    for note in root if root is not None else ():
        if local(note) in ("footnote", "endnote") and attribute(note, "type") in (None, "normal"):
            found[attribute(note, "id") or ""] = note
    return found


def _embedded(
    document: DocxDocument, relation_id: str, options: ParseOptions, depth: int, warnings: list[ParseWarning]
) -> Reading | None:
    """An altChunk: a document of another format inside this one."""
    from services.ingestor.parsing.embedded import read_embedded

    relation = document.package.relations(document.part).get(relation_id)
    if relation is None or relation.external:
        return None
    data = document.package.read(relation.target)
    try:
        if data.startswith(b"PK") and depth < _MAX_NESTED_DOCUMENTS:
            return read_package(io.BytesIO(data), options, depth=depth + 1)
        reading = read_embedded(data, relation.target)
    except DocumentError as error:
        reading, why = None, error.message
    else:
        why = "its format is not supported"
    if reading is None:
        warnings.append(ParseWarning(code="SKIPPED_OBJECT", message=f"an embedded document was skipped: {why}"))
        return None
    return replace(reading, warnings=())
