"""Rows as tables: by rich on a terminal, else as plain text, in blocks of 200 rows.

::

    terminal    topic   queueId  body                 one line per row: texts are cut, and columns without room are
                ──────────────────────────            below the table, with their value if all rows have the same one
                orders        0  {"id": 4711, "a…
                brokerName: broker-a
                no room for storeTimestamp, keys: --json has all columns

Cells are text without control characters, so that no message reaches a terminal as a command. The first block decides
the widths of plain text, which is the same wherever it goes.
"""

import io
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

import pyarrow as pa

from segmentlog.output import PlainTable, printable

from ..console import Console
from ..errors import FOUND
from .formats import Writer
from .json_lines import bodies, instants, json_values

_BLOCK_ROWS: Final = 200
_CELL_CHARS: Final = 100
_HEAD_CHARS: Final = 10  # what is left at least of the name of a column of numbers: `baseOffset`
_TEXT_CHARS: Final = 10  # what is left at least of a text
_SECONDS: Final = len("2026-01-31T12:00:00")
_GAP: Final = 2
_HOME: Final = "\x1b[H"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"


class _Table(Writer):
    """Rows in blocks."""

    _is_empty = True

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._sink = sink
        self._schema = schema

    def write(self, batch: pa.RecordBatch) -> None:
        for rows in _blocks(batch):
            self._is_empty = False
            self._write_block(rows)

    def close(self) -> None:
        """Write the head, if there was no row."""
        if self._is_empty:
            self._write_block([])

    @abstractmethod
    def _write_block(self, rows: Sequence[Sequence[str]]) -> None:
        """Write rows, with a head where the table needs one."""


class TextTable(_Table):
    """A table as plain text."""

    _layout: PlainTable | None = None

    def _write_block(self, rows: Sequence[Sequence[str]]) -> None:
        lines = []
        if self._layout is None:
            self._layout = PlainTable([self._schema.names, *rows], [_is_number(field) for field in self._schema])
            lines += [self._layout.line(self._schema.names), self._layout.rule]
        lines += map(self._layout.line, rows)
        self._sink.write("".join(line + "\n" for line in lines).encode())


class RichTable(_Table):
    """A table on a terminal, by rich, with a head for each block."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema, console: Console) -> None:
        super().__init__(sink, schema)
        self._console = console

    def _write_block(self, rows: Sequence[Sequence[str]]) -> None:
        from rich import box
        from rich.console import Console as Terminal
        from rich.table import Table
        from rich.text import Text

        shown, below = _fitted(self._schema, rows, self._console.width)
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False, collapse_padding=True)
        for column in shown:
            table.add_column(
                column.name,
                justify="right" if column.is_number else "left",
                width=column.width,
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*map(Text, row))  # not markup: `[red]` may be in a message
        text = io.StringIO()
        is_coloured = self._console.has_colour
        terminal = Terminal(
            file=text,
            width=self._console.width,
            force_terminal=is_coloured,
            color_system="standard" if is_coloured else None,
        )
        terminal.print(table)
        for line in below:
            terminal.print(Text(line, style="dim"))
        self._sink.write(text.getvalue().encode())
        self._sink.flush()


@dataclass(slots=True, eq=False)
class _Column:
    name: str
    cells: Sequence[str]
    is_number: bool
    is_time: bool
    least: int
    width: int

    @property
    def has_one_value(self) -> bool:
        return len(set(self.cells)) == 1


def _fitted(schema: pa.Schema, rows: Sequence[Sequence[str]], width: int) -> tuple[list[_Column], list[str]]:
    """Return the columns that have room in a terminal, and lines about the others."""
    columns = [_column(field, [row[at] for row in rows]) for at, field in enumerate(schema)]
    shown = list(columns)
    while len(shown) > 1 and sum(column.least + _GAP for column in shown) - _GAP > width:
        # Of equally wide columns the first and the last say most: a topic, and a body.
        ranks = [(each.has_one_value, each.least, min(at, len(shown) - 1 - at)) for at, each in enumerate(shown)]
        del shown[ranks.index(max(ranks))]
    room = width - sum(column.least + _GAP for column in shown) + _GAP
    for column in sorted(shown, key=lambda each: each.width - each.least):
        more = min(room, column.width - column.least)
        if column.is_time and column.least + more < column.width:
            column.cells = [f"{text[:_SECONDS]}Z" if text.endswith("Z") else text for text in column.cells]
            more = 0
        column.width = column.least + more
        room -= more
    left_out = [column for column in columns if column not in shown]
    constant = [f"{column.name}: {column.cells[0]}" for column in left_out if column.has_one_value]
    missing = [column.name for column in left_out if not column.has_one_value]
    below = [", ".join(constant)] if constant else []
    if missing:
        below.append(f"no room for {', '.join(missing)}: --json has all columns")
    return shown, below


def _column(field: pa.Field, cells: Sequence[str]) -> _Column:
    from rich.cells import cell_len

    widest = max(map(cell_len, cells), default=0)
    is_number, is_time = _is_number(field), pa.types.is_timestamp(field.type)
    width = max(widest, len(field.name))
    head = min(len(field.name), _HEAD_CHARS)
    least = min(width, _TEXT_CHARS)
    if is_number or is_time:
        least = max(min(widest, _SECONDS + 1) if is_time else widest, head)
    return _Column(field.name, cells, is_number, is_time, least, width)


def show(tables: Iterable[pa.Table], console: Console) -> int:
    """Show tables of one schema, each in place of the table before, until Ctrl-C."""
    # The screen is written over rather than cleared, so that it does not flicker.
    console.stdout.write(b"\x1b[2J")
    for table in tables:
        text = io.BytesIO()
        writer = RichTable(text, table.schema, console)
        for batch in table.to_batches():
            writer.write(batch)
        writer.close()
        lines = text.getvalue().decode().splitlines()
        shown = "".join(f"{line}{_CLEAR_LINE}\n" for line in lines)
        console.stdout.write(f"{_HOME}{shown}{_CLEAR_BELOW}".encode())
        console.stdout.flush()
    return FOUND


def _is_number(field: pa.Field) -> bool:
    return bool(pa.types.is_integer(field.type) or pa.types.is_floating(field.type))


def _blocks(batch: pa.RecordBatch) -> Iterator[list[tuple[str, ...]]]:
    for start in range(0, batch.num_rows, _BLOCK_ROWS):
        block = batch.slice(start, _BLOCK_ROWS)
        yield list(zip(*(cells(column) for column in block.columns), strict=True))


def cells(column: pa.Array, *, null: str = "-", most: int | None = _CELL_CHARS, separator: str = " ") -> list[str]:
    """Return a column as text for people, without control characters, cut after ``most`` characters."""
    # `null` is the text of null, `separator` is between properties.
    if pa.types.is_binary(column.type):
        text, hexadecimal = bodies(column)
        values = [
            as_text if digits is None else f"0x{digits}"
            for as_text, digits in zip(text.to_pylist(), hexadecimal.to_pylist(), strict=True)
        ]
    elif pa.types.is_timestamp(column.type):
        values = instants(column).to_pylist()
    elif pa.types.is_map(column.type) and column.type.item_type == pa.string():
        values = [
            None if pairs is None else separator.join(f"{name}={text}" for name, text in pairs)
            for pairs in column.to_pylist()
        ]
    elif pa.types.is_nested(column.type):
        values = json_values(column).to_pylist()
    elif pa.types.is_boolean(column.type):
        values = ["" if value is None else "yes" if value else "no" for value in column.to_pylist()]
    else:
        values = column.to_pylist()
    return [null if value is None else printable(str(value)[: most and most + 1], most) for value in values]
