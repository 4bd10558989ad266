"""Text for terminals and programs: the layout of plain tables, escapes, and JSON of reports.

::

    head      queue      before  after        names are aligned left, numbers right
    rule      ---------  ------  -----
    rows      orders/0       23      0
    note                 -> what to do        below its row, in the last column

Standard library only: the doctor, which reports missing packages, uses it, too.
"""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import fields
from enum import Enum
from typing import Any, Final

_GAP: Final = "  "
_ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"


class PlainTable:
    """Columns of a plain table, as wide as their widest cell in ``rows``, head included."""

    def __init__(self, rows: Sequence[Sequence[str]], are_numbers: Sequence[bool]) -> None:
        self._are_numbers = are_numbers
        self._widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]

    def line(self, cells: Sequence[str]) -> str:
        """Return a row as a line, without blanks at its end."""
        padded = (
            " " * (width - _width(cell)) + cell if is_number else cell + " " * (width - _width(cell))
            for cell, width, is_number in zip(cells, self._widths, self._are_numbers, strict=True)
        )
        return _GAP.join(padded).rstrip()

    @property
    def rule(self) -> str:
        return _GAP.join("-" * width for width in self._widths)

    @property
    def indent(self) -> str:
        return "".join(" " * width + _GAP for width in self._widths[:-1])


def text_table(
    rows: Sequence[Sequence[object]],
    *,
    head: Sequence[str] = (),
    rule: bool = False,
    notes: Sequence[str] = (),
    cell_chars: int | None = None,
) -> str:
    """Return rows as a plain table, without a line end after the last line."""
    # None is `-` among numbers, else empty. `notes` has one text per row, or an empty one. Cells are `printable`, and
    # cut after `cell_chars`.
    are_numbers = [_are_numbers(column) for column in zip(*rows, strict=True)] or [False] * len(head)
    cells = [
        [_cell(value, cell_chars, "-" if right else "") for value, right in zip(row, are_numbers, strict=True)]
        for row in rows
    ]
    layout = PlainTable([*([head] if head else []), *cells], are_numbers)
    lines = [layout.line(head)] if head else []
    lines += [layout.rule] if rule else []
    for at, row in enumerate(cells):
        lines.append(layout.line(row))
        if at < len(notes) and notes[at]:
            lines.append(f"{layout.indent}-> {notes[at]}")
    return "\n".join(lines)


def printable(text: str, most: int | None = None) -> str:
    r"""Return a text with ``\x1b`` and the like for what a terminal would obey or not show, at most ``most`` long."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    return shown if most is None or len(shown) <= most else shown[: most - 1] + _ELLIPSIS


def json_text(value: object, *, indent: int | None = None) -> str:
    """Write a report as JSON: dataclasses as objects of their fields, enums by value, tuples as arrays."""
    return json.dumps(value, indent=indent, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _are_numbers(column: Sequence[object]) -> bool:
    return any(isinstance(value, int) for value in column) and all(isinstance(v, int | None) for v in column)


def _cell(value: object, chars: int | None, null: str) -> str:
    if isinstance(value, dict):
        value = " ".join(f"{name}={text}" for name, text in value.items())
    return null if value is None else printable(str(value), chars)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def _width(text: str) -> int:
    """Return the columns that a terminal takes for a text."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
