"""Report of a job: a few numbers, and a table with a row per part, as text or JSON."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from segmentlog.output import json_text, printable, text_table
from segmentlog.query.times import iso_if_time


@dataclass(frozen=True, kw_only=True)
class Report:
    """Totals of a job, and a row per part.

    Attributes
    ----------
    numbers : Mapping[str, object]
        Totals by name, as in JSON: ``{"messages": 1200, "bytes": 88000}``.
    table : pyarrow.Table
        A row per part (a window, a topic, a finding), in order.
    has_findings : bool
        Whether the job found something wrong: the command then ends with exit code 1.
    """

    numbers: Mapping[str, object]
    table: pa.Table
    has_findings: bool = False

    @property
    def summary(self) -> str:
        """Totals in a line."""
        return ", ".join(f"{name} {_number(value)}" for name, value in self.numbers.items())

    def __str__(self) -> str:
        rows = [[_cell(each) for each in row.values()] for row in rows_of(self.table)]
        body = text_table(rows, head=self.table.column_names, rule=True) if rows else ""
        return "\n\n".join(filter(None, [self.summary, body]))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def document(self) -> dict[str, object]:
        """Return numbers and rows as one object for JSON."""
        return {**self.numbers, "rows": rows_of(self.table)}

    def to_json(self) -> str:
        """Return `document` as text."""
        return json_text(self.document())


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table, its times as text."""
    return [{name: iso_if_time(value) for name, value in row.items()} for row in table.to_pylist()]


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float) else printable(str(value))
