# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""Binary workbooks of every version (BIFF 2 to 8), through xlrd."""

import io
from pathlib import Path
from typing import Any

import xlrd

from services.common.errors import DocumentError, Reason
from services.domain.blocks import DocumentMetadata
from services.ingestor.parsing.cell_values import shown, with_format
from services.ingestor.parsing.office_crypto import OLE_MAGIC, password_required
from services.ingestor.parsing.ole_metadata import ole_metadata
from services.ingestor.parsing.sheets import MAX_CELLS, Sheet, too_many_cells


def xlrd_sheets(path: Path) -> list[Sheet]:
    book = _open(path)
    sheets: list[Sheet] = []
    for index in range(book.nsheets):
        sheet = book.sheet_by_index(index)
        if sheet.nrows * max(1, sheet.ncols) > MAX_CELLS:
            raise too_many_cells(sheet.name, sheet.nrows, sheet.ncols)
        rows = [[_text(book, sheet, r, c) for c in range(sheet.row_len(r))] for r in range(sheet.nrows)]
        width = max((len(row) for row in rows), default=0)
        even = [row + [""] * (width - len(row)) for row in rows]
        merged = [(y0, x0, y1 - 1, x1 - 1) for y0, y1, x0, x1 in sheet.merged_cells]
        sheets.append(Sheet(name=sheet.name, rows=even, hidden=sheet.visibility != 0, merged=merged))
        book.unload_sheet(index)
    return sheets


def xls_metadata(path: Path) -> DocumentMetadata:
    with path.open("rb") as file:
        is_ole = file.read(8) == OLE_MAGIC
    return ole_metadata(path) if is_ole else DocumentMetadata()


def _open(path: Path) -> Any:
    for formats in (True, False):
        try:
            return xlrd.open_workbook(
                str(path), logfile=io.StringIO(), on_demand=True, formatting_info=formats, ragged_rows=True
            )
        except xlrd.XLRDError as error:
            if "encrypted" in str(error).lower():
                raise password_required(given=False) from error
            if not formats:
                raise _damaged(error) from error
        except Exception as error:
            if not formats:
                raise _damaged(error) from error
    raise AssertionError("unreachable")


def _damaged(error: Exception) -> DocumentError:
    return DocumentError(f"the workbook is damaged ({type(error).__name__})", reason=Reason.UNREADABLE_DOCUMENT)


def _text(book: Any, sheet: Any, row: int, column: int) -> str:
    kind, value = sheet.cell_type(row, column), sheet.cell_value(row, column)
    match kind:
        case xlrd.XL_CELL_NUMBER:
            return _number(book, sheet, row, column, value)
        case xlrd.XL_CELL_DATE:
            return _date(book, value)
        case xlrd.XL_CELL_BOOLEAN:
            return "TRUE" if value else "FALSE"
        case xlrd.XL_CELL_ERROR:
            return xlrd.error_text_from_code.get(value, "#N/A")
        case _:
            return str(value)


def _number(book: Any, sheet: Any, row: int, column: int, value: float) -> str:
    if book.formatting_info:
        style = book.xf_list[sheet.cell_xf_index(row, column)]
        form = book.format_map.get(style.format_key)
        text = with_format(value, form.format_str) if form is not None and form.format_str else None
        if text is not None:
            return text
    return shown(value)


def _date(book: Any, value: float) -> str:
    try:
        moment = xlrd.xldate_as_datetime(value, book.datemode)
    except (ValueError, OverflowError):
        return shown(value)
    if value < 1:
        return shown(moment.time())
    return shown(moment.date()) if value == int(value) else shown(moment)
