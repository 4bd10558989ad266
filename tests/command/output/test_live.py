"""A table that is shown again in the same place."""

import io
from typing import Any

import pyarrow as pa

from segmentlog.command.console import Console
from segmentlog.command.output.live import show


def test_each_table_is_written_over_the_one_before() -> None:
    streams: dict[str, Any] = {"stdin": io.BytesIO(), "stdout": io.BytesIO(), "stderr": io.StringIO()}
    console = Console(is_terminal=True, width=40, **streams)
    tables = [pa.table({"messages": [number]}) for number in (7, 8)]
    assert show(tables, console) == 0
    text = console.stdout.getvalue().decode()  # type: ignore[attr-defined]
    start, first, second = text.split("\x1b[H")
    assert start == "\x1b[2J"
    assert "7" in first
    assert "8" in second
    assert "7" not in second
    assert all(line.endswith("\x1b[K") for line in second.splitlines()[:-1])
    assert second.endswith("\x1b[J")
