"""Output of commands for people and programs: one table printer, one JSON writer.

::

    head      queue      before  after        names are aligned left, numbers right
    rule      ---------  ------  -----
    rows      orders/0       23      0
    note                 -> what to do        below its row, in the last column

Standard library only: commands that report missing packages use it, too.
"""

import json
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

_GAP = "  "


def text_table(
    rows: Sequence[Sequence[object]],
    *,
    head: Sequence[str] = (),
    rule: bool = False,
    notes: Sequence[str] = (),
    cell_chars: int | None = None,
) -> str:
    """Return rows in columns as wide as their widest cell on a terminal.

    Parameters
    ----------
    rows
        Cells of any type, equally many per row. None is ``-`` among numbers, else empty. A character that a terminal
        does not print is a dot.
    head
        The names of the columns; none for a table without them.
    rule
        Whether a line separates the head from the rows.
    notes
        One per row, empty for none: what to do about it.
    cell_chars
        Longer cells are cut there; None leaves them.

    Returns
    -------
    str
        Lines without blanks at their ends, and without a line end after the last.
    """
    is_number = [_are_numbers(column) for column in zip(*rows, strict=True)] or [False] * len(head)
    cells = [
        [
            "-" if right and value is None else _cell(value, cell_chars)
            for value, right in zip(row, is_number, strict=True)
        ]
        for row in rows
    ]
    columns = zip(*([list(head)] if head else []), *cells, strict=True)
    widths = [max(map(_width, column)) for column in columns]

    def line(row: Sequence[str]) -> str:
        padded = (
            " " * (width - _width(cell)) + cell if right else cell + " " * (width - _width(cell))
            for cell, width, right in zip(row, widths, is_number, strict=True)
        )
        return _GAP.join(padded).rstrip()

    lines = [line(head)] if head else []
    lines += [_GAP.join("-" * width for width in widths)] if rule else []
    indent = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    for at, row in enumerate(cells):
        lines.append(line(row))
        if at < len(notes) and notes[at]:
            lines.append(f"{'':<{indent}}-> {notes[at]}")
    return "\n".join(lines)


def json_text(value: object, *, indent: int | None = None) -> str:
    """Write a report as JSON: dataclasses as objects of their fields, enums by value, tuples as arrays."""
    return json.dumps(_plain(value), indent=indent)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _are_numbers(column: Sequence[object]) -> bool:
    return any(isinstance(value, int) for value in column) and all(isinstance(v, int | None) for v in column)


def _cell(value: object, chars: int | None) -> str:
    if isinstance(value, dict):
        value = " ".join(f"{name}={text}" for name, text in value.items())
    text = "" if value is None else "".join(c if c.isprintable() else "\N{MIDDLE DOT}" for c in str(value))
    return text if chars is None or len(text) <= chars else text[: chars - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _width(text: str) -> int:
    """Columns that a terminal takes for a text."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def write_page(text: str, arguments: Sequence[str]) -> None:
    """Write a generated page to the file that is named first, else to standard output."""
    if arguments:
        Path(arguments[0]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
