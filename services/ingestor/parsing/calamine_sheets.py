"""Sheets of a workbook read by calamine: cached values of formulas, dates of both date systems."""

from collections.abc import Mapping
from pathlib import Path

from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetTypeEnum, SheetVisibleEnum

from services.common.errors import DocumentError, Reason
from services.ingestor.parsing.cell_values import shown
from services.ingestor.parsing.office_crypto import password_required
from services.ingestor.parsing.sheets import MAX_CELLS, Sheet, too_many_cells


def calamine_sheets(path: Path, overrides: Mapping[str, Mapping[tuple[int, int], str]]) -> list[Sheet]:
    """`overrides` are texts by sheet and place that calamine does not tell (errors, formats with leading zeros)."""
    try:
        with path.open("rb") as file:
            workbook = CalamineWorkbook.from_filelike(file)
            return [
                _sheet(workbook, meta.name, meta.visible != SheetVisibleEnum.Visible, overrides.get(meta.name, {}))
                for meta in workbook.sheets_metadata
                if meta.typ in (SheetTypeEnum.WorkSheet, SheetTypeEnum.MacroSheet)
            ]
    except PasswordError as error:
        raise password_required(given=False) from error
    except CalamineError as error:
        raise DocumentError(
            f"the workbook is damaged: {str(error)[:200]}", reason=Reason.UNREADABLE_DOCUMENT
        ) from error


def _sheet(workbook: CalamineWorkbook, name: str, hidden: bool, overrides: Mapping[tuple[int, int], str]) -> Sheet:
    sheet = workbook.get_sheet_by_name(name)
    if sheet.start is None or sheet.end is None:
        return Sheet(name=name, rows=(), hidden=hidden)
    height, width = sheet.end[0] - sheet.start[0] + 1, sheet.end[1] - sheet.start[1] + 1
    if height * width > MAX_CELLS:
        raise too_many_cells(name, height, width)
    rows = [[shown(value) for value in row] for row in sheet.to_python(skip_empty_area=True)]
    merged = [(a[0], a[1], b[0], b[1]) for a, b in sheet.merged_cell_ranges or ()]
    return Sheet(name=name, rows=rows, origin=sheet.start, hidden=hidden, merged=merged, shown=overrides)
