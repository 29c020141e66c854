"""What commands print: JSON for programs, tables and text for people."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table

_NEVER_CUT = frozenset({"id", "state", "kind"})

console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


def as_dict(message: Message) -> dict[str, Any]:
    """The message with its own field names, unset scalars included."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def print_json(value: object) -> None:
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """A table, or the sentence `empty` when there are no rows."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        whole = column in _NEVER_CUT  # an identifier that is cut is of no use
        table.add_column(column, no_wrap=whole, overflow="ignore" if whole else "fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    if table.row_count:
        console.print(table)
    else:
        console.print(empty)


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
