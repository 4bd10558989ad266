import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.query.bodies import CsvBodies, JsonBodies, body_format

TYPES = [
    *(pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.date32()),
    *(pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.decimal128(5, 2), pa.decimal128(38, 0)),
]
NESTED = [*TYPES, pa.list_(pa.int64()), pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])]
NUMBERS = [
    "0",
    "-0",
    "1",
    "-1",
    "127",
    "128",
    "-129",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "01",
    "1.0",
    "1.50",
    "1.500",
    "1.555",
    "1e3",
    "1e-2",
    "12e-1",
    "999.99",
    "1000",
    "-999.999",
    "1e400",
    "1E+2",
    "0e9",
    "0.001",
    "0.000",
    "NaN",
    "Infinity",
    "-Infinity",
    "inf",
    ".5",
    "5.",
    "+5",
    "0x1F",
    "1_000",
    "٣",
    "²",
]
TIMES = ["2026-01-31", "2026-01-31T12:00:00Z", "2026-01-31 12:00", "2026-13-01", "31.01.2026", "20260131"]
OTHERS = ["9" * 38, "9" * 40, "true", "TRUE", "False", "yes", "x", "", " 1", "1 ", "\t1", "null", "12 EUR", "1,5"]
TEXTS = st.sampled_from([*NUMBERS, *TIMES, *OTHERS]) | st.text(max_size=4)
VALUES = (
    TEXTS | TEXTS.map(json.dumps) | st.sampled_from(["[]", "[1]", '["a"]', "{}", '{"a":1}', '{"a":"x","b":[1]}', "["])
)


@given(st.sampled_from(NESTED), st.lists(VALUES, min_size=1, max_size=6))
def test_json_that_has_a_reason_is_refused_by_arrow(kind: pa.DataType, values: list[str]) -> None:
    form = JsonBodies(pa.schema([("c", kind)]))
    bodies = pa.array([f'{{"c":{value}}}'.encode() for value in values], pa.binary())
    compare(form, bodies)


@given(st.sampled_from(TYPES), st.lists(st.lists(TEXTS, min_size=1, max_size=3), min_size=1, max_size=6))
def test_csv_that_has_a_reason_is_refused_by_arrow(kind: pa.DataType, rows: list[list[str]]) -> None:
    form = CsvBodies(pa.schema([("a", pa.string()), ("c", kind)]))
    bodies = pa.array([",".join(row).encode() for row in rows], pa.binary())
    compare(form, bodies)


def compare(form: JsonBodies | CsvBodies, bodies: pa.BinaryArray) -> None:
    """Bodies are parsed as by a call of Arrow for each."""
    found = form.parse(bodies)
    alone = [type(form)(form.schema) for _ in bodies]
    for number, each in enumerate(alone):
        object.__setattr__(each, "_reasons", lambda bodies: pa.nulls(len(bodies), pa.string()))
        (row,), (error,) = (part.to_pylist() for part in each.parse(bodies[number : number + 1]))
        assert found.errors[number].is_valid == (error is not None), (bodies[number], found.errors[number], error)
        assert repr(found.columns.slice(number, 1).to_pylist()) == repr([row])


@pytest.mark.parametrize(
    ("kind", "schema", "good", "bad"),
    [
        ("json", "id bigint, l array<struct<n: int>>, c decimal(5,2), t timestamp", "{}", '{"id":"%d"}'),
        ("json", "id bigint, l array<struct<n: int>>, c decimal(5,2), t timestamp", "{}", '{"l":[{"n":1.5},%d]}'),
        ("json", "id bigint, l array<struct<n: int>>, c decimal(5,2), t timestamp", "{}", '{"c":1000,"n":%d}'),
        ("json", "id bigint, l array<struct<n: int>>, c decimal(5,2), t timestamp", "{}", "{'t':%d}"),
        ("json", "id bigint, l array<struct<n: int>>, c decimal(5,2), t timestamp", "{}", '{"t":"1.1.%d"}'),
        ("csv", "id int, x double, t timestamp", "1,1,", "o-%d,1,"),
        ("csv", "id int, x double, t timestamp", "1,1,", "2147483648,%d,"),
        ("csv", "id int, x double, t timestamp", "1,1,", "1,%d,1.1.2026"),
        ("csv", "id int, x double, t timestamp", "1,1,", "%d"),
    ],
)
def test_bodies_of_another_schema_cost_no_call_of_arrow_each(
    monkeypatch: pytest.MonkeyPatch, kind: str, schema: str, good: str, bad: str
) -> None:
    form: Any = body_format(kind, schema)
    calls, read = [0], type(form).read

    def counted(self: Any, bodies: pa.BinaryArray) -> pa.Table:
        calls[0] += 1
        return read(self, bodies)

    monkeypatch.setattr(type(form), "read", counted)
    bodies = [text.encode() for number in range(500) for text in (good, bad % number)]
    errors = form.parse(pa.array(bodies, pa.binary())).errors
    assert errors.is_valid().to_pylist() == [False, True] * 500
    assert calls[0] == 2
