"""Values of spreadsheet cells as text, the way a spreadsheet shows them without a format of its own."""

import datetime
import math


def shown(value: object) -> str:  # noqa: PLR0911  one case a type
    """Whole numbers without a fraction and in full, other numbers with up to 15 digits, dates as ISO 8601."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            return number(value)
        case datetime.datetime():
            return value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            seconds = round(value.total_seconds())
            sign = "-" if seconds < 0 else ""
            hours, rest = divmod(abs(seconds), 3600)
            return f"{sign}{hours}:{rest // 60:02}:{rest % 60:02}"
        case _:
            return str(value)


def number(value: float) -> str:
    if not math.isfinite(value):
        return ""
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    return format(value, ".15g")


def with_format(value: float, code: str) -> str | None:
    """A number under the formats that change what it says: leading zeros ("00000") and percent; None for any other."""
    bare = code.split(";", maxsplit=1)[0].strip().strip('"')
    if bare and set(bare) == {"0"} and len(bare) > 1 and value == int(value):
        return f"{'-' if value < 0 else ''}{abs(int(value)):0{len(bare)}}"
    if bare in ("0%", "0.0%", "0.00%", "#,##0%", "0.000%"):
        decimals = len(bare.split(".")[1]) - 1 if "." in bare else 0
        return f"{value * 100:.{decimals}f}%"
    if bare in ("00000-0000", "000-00-0000") and value == int(value) and value >= 0:
        digits = f"{int(value):09}"
        return f"{digits[:5]}-{digits[5:]}" if bare == "00000-0000" else f"{digits[:3]}-{digits[3:5]}-{digits[5:]}"
    return None
