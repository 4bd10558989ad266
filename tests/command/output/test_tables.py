import io
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.cells import cell_len

from segmentlog.command.console import Console
from segmentlog.command.output.tables import RichTable, TextTable, show

BATCH = pa.record_batch(
    {
        "topic": ["orders", "払い"],
        "queueId": pa.array([0, 12], pa.int32()),
        "body": pa.array([b"\x1b[31mred\n", b"\xff\x00"]),
        "storeTimestamp": pa.array([1_769_817_600_123_000, None], pa.timestamp("us", "UTC")),
        "properties": pa.array([[("a", "1"), ("b", "2")], None], pa.map_(pa.string(), pa.string())),
        "isSystem": [True, None],
    }
)


def plain(*batches: pa.RecordBatch) -> list[str]:
    sink = io.BytesIO()
    table = TextTable(sink, BATCH.schema)
    for batch in batches:
        table.write(batch)
    table.close()
    return sink.getvalue().decode().splitlines()


def test_plain_text_is_aligned_and_escaped() -> None:
    assert plain(BATCH) == [
        "topic   queueId  body           storeTimestamp            properties  isSystem",
        "------  -------  -------------  ------------------------  ----------  --------",
        "orders        0  \\x1b[31mred\\n  2026-01-31T00:00:00.123Z  a=1 b=2     yes",
        "払い         12  0xff00         -                         -",
    ]


def test_the_head_comes_once_and_without_rows_too() -> None:
    assert len(plain(BATCH, BATCH)) == 6
    assert plain(BATCH.slice(0, 0))[0].startswith("topic  queueId  body")


def rich(batch: pa.RecordBatch, *, has_colour: bool, width: int = 120) -> str:
    sink = io.BytesIO()
    streams: dict[str, Any] = {"stdin": io.BytesIO(), "stdout": sink, "stderr": io.StringIO()}
    table = RichTable(sink, batch.schema, Console(is_terminal=True, has_colour=has_colour, width=width, **streams))
    table.write(batch)
    table.close()
    return sink.getvalue().decode()


def test_a_terminal_shows_a_message_but_does_not_obey_it() -> None:
    shown = rich(BATCH, has_colour=False)
    assert "\\x1b[31mred\\n" in shown
    assert "\x1b" not in shown
    assert "\x1b[1m" in rich(BATCH, has_colour=True)
    assert "\x1b[31m" not in rich(BATCH, has_colour=True)


def test_brackets_in_a_message_are_not_markup() -> None:
    assert "[red]x[/red]" in rich(pa.record_batch({"body": pa.array([b"[red]x[/red]"])}), has_colour=True)


def test_a_terminal_shows_the_head_of_no_rows() -> None:
    assert "storeTimestamp" in rich(BATCH.slice(0, 0), has_colour=False)


MESSAGES = pa.record_batch(
    {
        "brokerName": ["broker-a"] * 3,
        "topic": ["orders", "orders", "払い-orders-of-the-whole-company"],
        "queueId": pa.array([0, 12, 3], pa.int32()),
        "queueOffset": [7, 123_456_789, 12],
        "storeTimestamp": pa.array([1_769_817_600_123_000, 1_769_817_601_000_000, None], pa.timestamp("us", "UTC")),
        "tags": ["paid", None, "🚀"],
        "keys": ["k-1 k-2", "", "\x9b31m"],
        "body": pa.array(['{"id": 4711, "name": "払い払い払い払い払い払い"}'.encode(), b"\xff\x00", b"\x1b[2J\n" * 9]),
    }
)
GOLDEN = Path(__file__).with_name("tables.txt")


def test_terminals_of_all_widths_and_pipes_show_a_line_per_row() -> None:
    found = ["pipe:"]
    sink = io.BytesIO()
    plain_table = TextTable(sink, MESSAGES.schema)
    plain_table.write(MESSAGES)
    found += sink.getvalue().decode().splitlines()
    for width in (120, 80, 60, 20):
        lines = rich(MESSAGES, has_colour=False, width=width).splitlines()
        assert all(cell_len(line) <= width for line in lines)
        found += [f"{width}:", *(line.rstrip() for line in lines)]
    assert found == GOLDEN.read_text(encoding="utf-8").splitlines()


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
