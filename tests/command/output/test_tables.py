import io
from typing import Any

import pyarrow as pa

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


def test_a_narrow_terminal_folds_texts_and_times() -> None:
    numbers, times = pa.array([123_456_789]), pa.array([1_769_817_600_123_000], pa.timestamp("us", "UTC"))
    columns = {"brokerName": ["a"], "topic": ["orders"], **{f"number{each}": numbers for each in range(3)}}
    shown = rich(pa.record_batch({**columns, "first": times, "last": times}), has_colour=False, width=80)
    assert max(map(len, shown.splitlines())) <= 80
    cells = "".join(shown.split())
    assert all(cells.count(each) == 1 for each in columns)
    assert "orders" in cells
    assert "…" not in cells


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
