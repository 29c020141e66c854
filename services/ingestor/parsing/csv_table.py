"""Delimited text as one table: the delimiter found by how evenly it cuts, every field kept as it is written."""

import csv
import io
from collections import Counter
from pathlib import Path

from services.common.errors import DocumentError, Reason
from services.domain.blocks import DocumentMetadata
from services.ingestor.parsing.cleaning import clean
from services.ingestor.parsing.parser import ParseOptions, Reading
from services.ingestor.parsing.plain import load
from services.ingestor.parsing.sheets import MAX_CELLS
from services.ingestor.parsing.tables import table_block

_DELIMITERS = (",", ";", "\t", "|", ":", "^")
_SAMPLE_ROWS = 200
_FIELD_CHARS = 10_000_000


def read_csv(path: Path, options: ParseOptions) -> Reading:
    decoded, warnings = load(path, options)
    rows = csv_rows(clean(decoded.text))
    block = table_block(rows, header_rows=_header_rows(rows))
    return Reading(blocks=(block,) if block else (), metadata=DocumentMetadata(), warnings=warnings)


def csv_rows(text: str) -> list[list[str]]:
    """Rows of fields. Raises DOCUMENT_LIMIT for more cells than a table may have."""
    csv.field_size_limit(_FIELD_CHARS)
    rows: list[list[str]] = []
    cells = 0
    for row in csv.reader(io.StringIO(text), delimiter=find_delimiter(text), skipinitialspace=True):
        cells += len(row)
        if cells > MAX_CELLS:
            raise DocumentError(f"the table has more than {MAX_CELLS} cells, the limit", reason=Reason.DOCUMENT_LIMIT)
        if any(cell.strip() for cell in row):
            rows.append(row)
    return rows


def find_delimiter(text: str) -> str:
    """The delimiter that cuts most rows into the same number of fields, the larger number where two tie."""
    first = text[:2000].split("\n", 1)[0]
    if first.lower().startswith("sep=") and len(first) == 5:
        return first[4]
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        widths = _widths(text, delimiter)
        usual, count = Counter(w for w in widths).most_common(1)[0] if widths else (1, 0)
        if usual < 2:
            continue
        score = count / len(widths) + min(usual, 20) * 0.01 + (0.05 if delimiter in ",;\t" else 0.0)
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _widths(text: str, delimiter: str) -> list[int]:
    widths: list[int] = []
    try:
        for row in csv.reader(io.StringIO(text[:200_000]), delimiter=delimiter, skipinitialspace=True):
            if row:
                widths.append(len(row))
            if len(widths) >= _SAMPLE_ROWS:
                break
    except csv.Error:
        return []
    return widths


def _header_rows(rows: list[list[str]]) -> int:
    """One unless the first row looks like the others: it holds a number where they do."""
    if len(rows) < 2:
        return 0
    return int(not any(_number(cell) for cell in rows[0]) and all(cell.strip() for cell in rows[0]))


def _number(cell: str) -> bool:
    bare = cell.strip().lstrip("-+$€£").replace(",", "").replace(".", "", 1).rstrip("%")
    return bare.isdigit() and not (len(bare) == 4 and bare.startswith(("19", "20")))
