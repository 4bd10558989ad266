"""JSON lines that are made column by column, compared with what Python's own JSON reads from them."""

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.command.output.json_lines import escaped, json_lines

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("body", pa.binary()),
        ("storeTimestamp", pa.timestamp("us", "UTC")),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("isSystem", pa.bool_()),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "topic": st.none() | st.text(),
        "queueId": st.none() | st.integers(-(2**31), 2**31 - 1),
        "queueOffset": st.none() | st.integers(-(2**63), 2**63 - 1),
        "body": st.none() | st.binary() | st.text().map(str.encode),
        "storeTimestamp": st.just(1_769_817_600_123_000) | st.none(),
        "properties": st.none() | st.lists(st.tuples(st.text(), st.text()), unique_by=lambda pair: pair[0], max_size=3),
        "isSystem": st.none() | st.booleans(),
    }
)


def expected(row: dict[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            try:
                found[name] = value.decode()
            except UnicodeDecodeError:
                found[name + "Hex"] = value.hex()
        elif name == "storeTimestamp":
            found[name] = None if value is None else "2026-01-31T00:00:00.123Z"
        elif isinstance(value, list):
            found[name] = dict(value)
        else:
            found[name] = value
    return found


@given(st.lists(ROWS, max_size=6), st.integers(0, 2))
def test_each_row_is_a_line_with_its_values(rows: list[dict[str, object]], skipped: int) -> None:
    """Also of a slice: its buffers begin before its first value."""
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA).slice(skipped)
    lines = bytes(json_lines(batch)).decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == [expected(row) for row in rows[skipped:]]


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    (found,) = escaped(pa.array([text])).to_pylist()
    assert json.loads(f'"{found}"') == text
    assert not [c for c in found if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0]


def test_every_control_character_is_escaped() -> None:
    text = "".join(map(chr, range(0x100)))
    (found,) = escaped(pa.array([text])).to_pylist()
    assert json.loads(f'"{found}"') == text
    assert not [c for c in found if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0]


def test_columns_of_null_and_no_columns_but_one() -> None:
    assert bytes(json_lines(pa.record_batch({"a": pa.nulls(2)}))) == b'{"a":null}\n{"a":null}\n'
    assert bytes(json_lines(pa.record_batch({"a": pa.array([], pa.int64())}))) == b""
