import io

import pyarrow as pa
import pytest

from segmentlog.command.errors import UsageError
from segmentlog.command.output.templates import parse_template
from segmentlog.command.output.writers import Templated

BATCH = pa.record_batch(
    {
        "topic": ["orders", "orders"],
        "queueId": pa.array([3, 4], pa.int32()),
        "queueOffset": [17, 18],
        "body": pa.array([b"\x1b[1m\xff", None]),
        "keys": ["k1 k2", None],
        "storeTimestamp": pa.array([1_769_817_600_123_000, None], pa.timestamp("us", "UTC")),
        "properties": pa.array([[("a", "1"), ("b", "2")], None], pa.map_(pa.string(), pa.string())),
    }
)


def shown(template: str, batch: pa.RecordBatch = BATCH, *, terminal: bool = False) -> bytes:
    sink = io.BytesIO()
    writer = Templated(sink, batch.schema, parse_template(template), is_escaped=terminal)
    writer.write(batch)
    writer.close()
    return sink.getvalue()


@pytest.mark.parametrize(
    ("template", "first", "second"),
    [
        ("%t", b"orders", b"orders"),
        ("%p", b"3", b"4"),
        ("%o", b"17", b"18"),
        ("%s", b"\x1b[1m\xff", b""),
        ("%S", b"5", b"-1"),
        ("%R", b"\0\0\0\5", b"\xff\xff\xff\xff"),
        ("%k", b"k1 k2", b""),
        ("%K", b"5", b"-1"),
        ("%T", b"1769817600123", b""),
        ("%h", b"a=1,b=2", b""),
        ("%{storeTimestamp}", b"2026-01-31T00:00:00.123Z", b""),
        ("%{queueId}%%", b"3%", b"4%"),
        (r"%t\t%p\n", b"orders\t3\n", b"orders\t4\n"),
        (r"\x00\xFF\\", b"\x00\xff\\", b"\x00\xff\\"),
        ("x", b"x", b"x"),
    ],
)
def test_codes(template: str, first: bytes, second: bytes) -> None:
    assert shown(template) == first + second
    assert shown(template, BATCH.slice(1)) == second
    assert shown(template, BATCH.slice(2)) == b""


def test_a_terminal_gets_text() -> None:
    assert shown(r"%s|%{topic}\n", BATCH.slice(0, 1), terminal=True) == b"0x1b5b316dff|orders\n"
    text = pa.record_batch({"body": pa.array([b"\x1b[1m\n"])})
    assert shown(r"%s\n", text, terminal=True) == b"\\x1b[1m\\n\n"
    assert shown(r"%s\n", text) == b"\x1b[1m\n\n"


@pytest.mark.parametrize(
    ("template", "problem"), [("%q", "`%q` is unknown"), ("100%", "`%` is unknown"), (r"\q", r"`\\q` is unknown")]
)
def test_wrong_templates(template: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_template(template)


def test_a_wrong_column() -> None:
    with pytest.raises(UsageError, match="there is no column `topik`") as caught:
        shown("%{topik}")
    assert "Did you mean `topic`?" in str(caught.value)


def test_columns_are_named_once() -> None:
    assert parse_template("%s %S %t %{keys} %k x").columns == ("body", "topic", "keys")
