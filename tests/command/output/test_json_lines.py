import json
import unicodedata
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from segmentlog.command.output.json_lines import escaped, instants, json_lines


@pytest.mark.parametrize(("us", "text"), [(-1_000, "1969-12-31T23:59:59.999Z"), (None, None)])
def test_times_are_iso_8601_in_utc(us: int | None, text: str | None) -> None:
    assert instants(pa.array([us], pa.timestamp("us", "UTC"))).to_pylist() == [text]


@given(
    st.lists(st.tuples(st.integers(-62_135_596_800, 253_402_300_799), st.lists(st.integers(0, 999), max_size=12))),
    st.integers(0, 3),
)
def test_runs_of_one_second(seconds: list[tuple[int, list[int]]], skipped: int) -> None:
    """All years that Python knows, long runs and short ones; also of a slice."""
    times = [second * 1_000_000 + ms * 1000 for second, all_ms in seconds for ms in all_ms]
    found = instants(pa.array(times, pa.timestamp("us", "UTC")).slice(skipped)).to_pylist()
    expected = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us) for us in times[skipped:]]
    assert found == [each.isoformat(timespec="milliseconds").replace("+00:00", "Z") for each in expected]


def test_years_of_more_than_four_digits() -> None:
    us = 253_402_300_800_000_000
    times = pa.array([us - 1000, *[us] * 20], pa.timestamp("us", "UTC"))
    assert instants(times).to_pylist() == ["9999-12-31T23:59:59.999Z", *["10000-01-01T00:00:00.000Z"] * 20]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit(unit: str) -> None:
    seconds = pa.array([1_769_817_606] * 8, pa.timestamp("s", "UTC"))
    assert instants(seconds.cast(pa.timestamp(unit, "UTC"))).to_pylist() == ["2026-01-31T00:00:06.000Z"] * 8


PAIRS = st.lists(st.tuples(st.text(), st.text()), unique_by=lambda pair: pair[0], max_size=3)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "topic": (pa.string(), st.text()),
    "queueId": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "queueOffset": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "body": (pa.binary(), st.binary() | st.text().map(str.encode)),
    "storeTimestamp": (pa.timestamp("us", "UTC"), st.just(1_769_817_600_123_000)),
    "properties": (pa.map_(pa.string(), pa.string()), PAIRS),
    "isSystem": (pa.bool_(), st.booleans()),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
ROWS = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})


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


@pytest.mark.parametrize("byte", [*b'\x00\n\x1f !"\\~\x7f', 0x80, 0xC2, 0xFF])
def test_one_byte_of_a_body_decides_how_it_is_written(byte: int) -> None:
    """Wherever it is: bodies are searched in pieces."""
    for at in (0, 5, (1 << 17) - 1, 1 << 17):
        plain = b"a" * ((1 << 17) + 7)
        body = plain[:at] + bytes([byte]) + plain[at + 1 :]
        (line,) = bytes(json_lines(pa.record_batch({"body": pa.array([body])}))).splitlines()
        assert all(0x20 <= each < 0x7F for each in line)
        found = json.loads(line)
        assert found == ({"body": body.decode()} if byte < 0x80 else {"bodyHex": body.hex()})


@given(st.lists(st.sampled_from(["", "a", "b", "ab", 'x"', None]), min_size=1, max_size=4), st.integers(0, 2))
@example(["a", "b", "a"], 0)
def test_values_that_all_rows_share(values: list[str | None], skipped: int) -> None:
    rows = [{"before": 1, "text": each, "after": True} for each in values]
    batch = pa.RecordBatch.from_pylist(rows).cast(
        pa.schema([("before", pa.int32()), ("text", pa.string()), ("after", pa.bool_())])
    )
    lines = bytes(json_lines(batch.slice(skipped))).splitlines()
    assert [json.loads(line) for line in lines] == rows[skipped:]


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    (found,) = escaped(pa.array([text])).to_pylist()
    assert json.loads(f'"{found}"') == text
    assert not [c for c in found if ord(c) < 0x10000 and unicodedata.category(c) in {"Cc", "Zl", "Zp"}]


HIDDEN = [0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070)]
HIDDEN += [0xFEFF, 0xFFF9, 0xFFFA, 0xFFFB]


@pytest.mark.parametrize("around", ["", "a", "\u2010\u4e2d\ufffd\xa0"])
def test_characters_that_turn_or_hide_text_are_escaped(around: str) -> None:
    """U+202E shows the rest of a line from right to left: a terminal would show another text than the message's."""
    texts = [around + chr(character) + around for character in HIDDEN]
    rows = [{"tags": text, "properties": [(text, text)], "body": text.encode()} for text in texts]
    schema = pa.schema([("tags", pa.string()), ("properties", SCHEMA.field("properties").type), ("body", pa.binary())])
    lines = bytes(json_lines(pa.RecordBatch.from_pylist(rows, schema))).decode().splitlines()
    assert not set("".join(lines)) & set(map(chr, HIDDEN))
    assert all(around in line for line in lines)
    assert [json.loads(line) for line in lines] == [
        {"tags": text, "properties": {text: text}, "body": text} for text in texts
    ]


def test_a_column_of_nulls_is_written_as_null_and_an_empty_batch_as_nothing() -> None:
    assert bytes(json_lines(pa.record_batch({"a": pa.nulls(2)}))) == b'{"a":null}\n{"a":null}\n'
    assert bytes(json_lines(pa.record_batch({"a": pa.array([], pa.int64())}))) == b""
