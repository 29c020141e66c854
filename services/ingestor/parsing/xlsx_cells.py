# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false
"""A first pass over the XML of a workbook: bombs and absurd ranges refused, and the cells that need their own text."""

import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from lxml import etree

from services.common.errors import DocumentError, Reason
from services.domain.blocks import DocumentMetadata
from services.ingestor.parsing.cell_values import with_format
from services.ingestor.parsing.ooxml import Package, attribute, child, local
from services.ingestor.parsing.parser import ParseOptions
from services.ingestor.parsing.sheets import MAX_CELLS, too_many_cells

_CELL = re.compile(rb'<(?:\w+:)?c\b[^>]*?\br="([A-Z]{1,3})(\d{1,7})"')
_DOCTYPE = re.compile(rb"<!(?:DOCTYPE|ENTITY)", re.I)
_BUILT_IN = {9: "0%", 10: "0.00%"}
_MAX_SHEETS = 1000


@dataclass(slots=True, kw_only=True)
class XlsxCells:
    """Texts by sheet name and (row, column) from 0, and the core properties."""

    shown: dict[str, dict[tuple[int, int], str]] = field(default_factory=dict[str, dict[tuple[int, int], str]])
    metadata: DocumentMetadata = field(default_factory=DocumentMetadata)

    @classmethod
    def scan(cls, path: Path, options: ParseOptions) -> "XlsxCells":
        """Raises DOCUMENT_LIMIT for what would not fit in memory, UNREADABLE_DOCUMENT for a broken container."""
        package = Package(path, options.max_unpacked_bytes)
        try:
            cells = cls(metadata=package.metadata())
            part = package.main_part("xl/workbook.xml")
            if part.endswith(".bin"):
                return cells
            relations = package.relations(part)
            for relation in relations.values():
                if relation.kind in ("sharedStrings", "styles", "worksheet") and not relation.external:
                    refuse_entities(package.read(relation.target), relation.target)
            formats = _formats(package, next((r.target for r in relations.values() if r.kind == "styles"), ""))
            root = package.xml(part)
            sheets = child(root, "sheets")
            for sheet in list(sheets if sheets is not None else ())[:_MAX_SHEETS]:
                relation = relations.get(attribute(sheet, "id") or "")
                if relation is not None and relation.kind == "worksheet":
                    name = attribute(sheet, "name") or ""
                    cells.shown[name] = _sheet_cells(package.read(relation.target), name, formats)
            return cells
        finally:
            package.close()


def refuse_entities(data: bytes, part: str) -> None:
    """Office writes no document type declaration; whoever does wants entities expanded."""
    if _DOCTYPE.search(data[:8192]):
        raise DocumentError(
            f"part {part} of the workbook declares XML entities, which are refused", reason=Reason.UNREADABLE_DOCUMENT
        )


def _formats(package: Package, part: str) -> dict[int, str]:
    """Number formats by cell style."""
    root = package.xml(part) if part else None
    codes = dict(_BUILT_IN)
    formats: dict[int, str] = {}
    for group in root if root is not None else ():
        if local(group) == "numFmts":
            for entry in group:
                codes[int(attribute(entry, "numFmtId") or 0)] = attribute(entry, "formatCode") or ""
    for group in root if root is not None else ():
        if local(group) == "cellXfs":
            for index, entry in enumerate(group):
                code = codes.get(int(attribute(entry, "numFmtId") or 0), "")
                if with_format(1, code) is not None:
                    formats[index] = code
    return formats


def _sheet_cells(data: bytes, name: str, formats: dict[int, str]) -> dict[tuple[int, int], str]:
    _check_range(data, name)
    if b't="e"' not in data and not formats:
        return {}
    found: dict[tuple[int, int], str] = {}
    for _, cell in etree.iterparse(
        io.BytesIO(data), tag="{*}c", resolve_entities=False, no_network=True, load_dtd=False, recover=True
    ):
        place = _place((cell.get("r") or "").encode())
        value = next((entry.text for entry in cell if local(entry) == "v"), None)
        if place is not None and value:
            style = int(cell.get("s") or 0)
            if cell.get("t") == "e":
                found[place] = value
            elif style in formats and cell.get("t") in (None, "n"):
                text = _formatted(value, formats[style])
                if text is not None:
                    found[place] = text
        cell.clear()
    return found


def _formatted(value: str, code: str) -> str | None:
    try:
        return with_format(float(value), code)
    except (ValueError, OverflowError):
        return None


def _check_range(data: bytes, name: str) -> None:
    """The cells there are, not the range declared, decide how large the table in memory will be."""
    top, left, bottom, right = 1 << 30, 1 << 30, 0, 0
    for match in _CELL.finditer(data):
        row, column = int(match[2]), _column(match[1])
        # Cells without a value do not count, but telling them apart costs a parse: only far ones are looked at.
        if (row > 100_000 or column > 2_000) and data[match.end() : match.end() + 200].split(b">", 1)[0].endswith(b"/"):
            continue
        top, bottom = min(top, row), max(bottom, row)
        left, right = min(left, column), max(right, column)
    if bottom and (bottom - top + 1) * (right - left + 1) > MAX_CELLS:
        raise too_many_cells(name, bottom - top + 1, right - left + 1)


def _place(reference: bytes) -> tuple[int, int] | None:
    match = re.fullmatch(rb"([A-Z]{1,3})(\d{1,7})", reference)
    return (int(match[2]) - 1, _column(match[1]) - 1) if match else None


def _column(letters: bytes) -> int:
    column = 0
    for letter in letters:
        column = column * 26 + letter - 64
    return column
