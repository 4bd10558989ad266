import csv
import io
import json
import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.query.bodies import body_format
from segmentlog.query.body_columns import BODY_ERROR, BodyFormat
from segmentlog.store import ConfigError


def widened(form: BodyFormat, bodies: list[bytes | None]) -> list[dict[str, Any]]:
    """Rows of a batch that does not begin at the start of its buffers, widened by a format from another process."""
    form = pickle.loads(pickle.dumps(form))
    values = pa.array([b"front", *bodies], pa.binary()).slice(1)
    batch = pa.record_batch({"queueOffset": pa.array(range(len(bodies)), pa.int64()), "body": values})
    found = form.widen(batch)
    found.validate(full=True)
    assert found.schema == form.widened(batch.schema)
    assert found.select(["queueOffset", "body"]) == batch
    rows: list[dict[str, Any]] = found.drop_columns(["queueOffset", "body"]).to_pylist()
    return rows


def check(form: BodyFormat, cases: list[tuple[bytes | None, Any]]) -> None:
    together = widened(form, [body for body, _ in cases])
    for (body, expected), row in zip(cases, together, strict=True):
        error = row.pop(BODY_ERROR.name)
        (alone,) = widened(form, [body])
        assert repr(alone) == repr(row | {BODY_ERROR.name: error})  # NaN is not equal to itself
        if isinstance(expected, str):
            assert error is not None
            assert expected in error, body
            assert set(row.values()) == {None}, body
        else:
            assert error is None, (body, error)
            assert repr(tuple(row.values())) == repr(expected), body


def test_json() -> None:
    form = body_format("json", "id bigint, s string, x double, l array<struct<n: int>>")
    cases: list[tuple[bytes | None, Any]] = [
        (b'{"id":1,"s":"a","x":1.5,"l":[{"n":1},{"n":null,"m":2},null]}', (1, "a", 1.5, [{"n": 1}, {"n": None}, None])),
        (b' {\r\n\t"id" : 2 }\n', (2, None, None, None)),
        (b"{}", (None, None, None, None)),
        (b'{"more":{"id":[1]},"id":3}', (3, None, None, None)),
        (b"", "the body is empty"),
        (None, "the body is null"),
        (b" \n", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"1", "not a JSON object"),
        (b'{"id":1', "not a JSON object"),
        (b'{"id":1}{"id":2}', "2 values"),
        (b'{"id":1}\n{"id":2}', "2 values"),
        (b'{"id":[{}', "the body is not JSON"),  # two halves of one object, side by side
        (b'{"more":1}]}', "empty"),
        (b'{"s":"a}', "Unterminated string"),
        (b'{"id":"1"}', "changed from number to string"),
        (b'{"id":1.5}', "1.5"),
        (b'{"id":true}', "boolean"),
        (b'{"s":1}', "string"),
        (b'{"l":{}}', "array"),
        (b'{"l":[{"n":2147483648}]}', "2147483648"),
        (b'{"id":99999999999999999999}', "9999"),
        (b'{"id":' + b"9" * 5000 + b"}", "…"),
        (b'{"id":-9223372036854775808}', (-(1 << 63), None, None, None)),
        (b'{"x":9223372036854775808}', (None, None, 2.0**63, None)),
        (b'{"x":1e999}', "Number too big"),
        (b'{"x":NaN}', (None, None, math.nan, None)),
        (b'{"id":1,"id":2}', "twice"),
        (b'{"more":1,"more":2}', (None, None, None, None)),
        (b'{"s":"\xff"}', "not UTF-8"),
        (b'{"s":"\0"}', "Invalid control character"),
        (rb'{"s":"\u0000\ud83d\ude00"}', (None, "\0\N{GRINNING FACE}", None, None)),
        (rb'{"s":"\ud800"}', "surrogate"),
        (b'\xef\xbb\xbf{"id":1}', "not a JSON object"),
        (b'{"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}", (None, None, None, None)),
        (b'{"id":4}', (4, None, None, None)),
    ]
    check(form, cases)


def test_times_and_decimals_of_json() -> None:
    form = body_format("json", "t timestamp, n timestamp_ntz, d date, c decimal(5,2), l array<struct<d: date>>")
    expected = (
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        datetime(2026, 1, 31, 12, 0, 0, 500000),  # noqa: DTZ001 - a time without a zone
        date(2026, 1, 31),
        Decimal("1.50"),
        [{"d": date(2026, 2, 1)}],
    )
    body = b'{"t":"2026-01-31T12:00:00Z","n":"2026-01-31T12:00:00.5","d":"2026-01-31","c":1.5,"l":[{"d":"2026-02-01"}]}'
    (row,) = widened(form, [body])
    assert tuple(row.values()) == (*expected, None)
    for wrong in b'{"d":"31.1.2026"}', b'{"c":1.555}', b'{"c":1000}', b'{"t":5}':
        (row,) = widened(form, [wrong])
        assert row["bodyError"]


def test_csv() -> None:
    check(
        body_format("csv", pa.schema([("id", pa.int32()), ("s", pa.string()), ("x", pa.float64())])),
        [
            (b"1,a,2.5", (1, "a", 2.5)),
            (b'2,"a,""b""\r\nc",\r\n', (2, 'a,"b"\r\nc', None)),
            (b",,", (None, "", None)),
            (b"4,NULL,NaN", (4, "NULL", math.nan)),
            ('"5",ä,1\n'.encode(), (5, "ä", 1.0)),
            (b"", "the body is empty"),
            (b"\n", "the body is empty"),
            (None, "the body is null"),
            (b"1,a", "Expected 3 columns, got 2"),
            (b"1,a,2,3", "Expected 3 columns, got 4"),
            (b"x,a,1", "conversion error"),
            (b"99999999999,a,1", "conversion error"),
            (b'3,a"b,1', "not one record of CSV"),
            (b'3,"a,1', "not one record of CSV"),  # an open quote takes nothing of the next body
            (b'a",1', "not one record of CSV"),
            (b"5,a,1\n6,b,2", "not one record of CSV"),
            (b"8,\xff,1", "not UTF-8"),
            (b"9,\0,1", (9, "\0", 1.0)),
            (b"10,a,1", (10, "a", 1.0)),
        ],
    )


def test_text() -> None:
    check(
        body_format("text"),
        [
            (b"", ("",)),
            ("ä\0".encode(), ("ä\0",)),
            (b"\xff", "not UTF-8"),
            (b"\xed\xa0\x80", "not UTF-8"),
            (None, "null"),
        ],
    )


@pytest.mark.parametrize(("kind", "schema"), [("json", "a int"), ("csv", "a int"), ("text", None)])
def test_a_batch_without_rows(kind: str, schema: str | None) -> None:
    assert widened(body_format(kind, schema), []) == []
    assert len(widened(body_format(kind, schema), [None, None])) == 2


json_values = st.deferred(
    lambda: st.one_of(
        st.tuples(st.just(pa.int64()), st.integers(-(1 << 63), (1 << 63) - 1)),
        st.tuples(st.just(pa.bool_()), st.booleans()),
        st.tuples(st.just(pa.float64()), st.floats(allow_nan=False, allow_infinity=False)),
        st.tuples(st.just(pa.string()), st.text()),
        json_values.map(lambda one: (pa.list_(one[0]), [one[1], None])),
        st.dictionaries(st.text(), json_values, min_size=1, max_size=3).map(
            lambda fields: (
                pa.struct([(name, kind) for name, (kind, _) in fields.items()]),
                {name: value for name, (_, value) in fields.items()},
            )
        ),
    )
)


@given(st.dictionaries(st.text(), json_values, min_size=1, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_json_of_any_schema_is_read_back(
    fields: dict[str, tuple[pa.DataType, Any]], only_ascii: bool, indent: int | None
) -> None:
    fields = {name: each for name, each in fields.items() if name != BODY_ERROR.name}
    schema = pa.schema([(name, kind) for name, (kind, _) in fields.items()])
    if not fields:
        return
    row = {name: value for name, (_, value) in fields.items()}
    body = json.dumps(row, ensure_ascii=only_ascii, indent=indent).encode()
    found = body_format("json", schema).parse(pa.array([b"{", body, b"", body], pa.binary()))
    assert found.columns.to_pylist() == [dict.fromkeys(row), row, dict.fromkeys(row), row]
    assert found.errors.is_null().to_pylist() == [False, True, False, True]


@given(st.lists(st.tuples(st.integers(-1000, 1000), st.text(st.characters(exclude_categories=["Cs"]))), max_size=5))
def test_csv_that_python_writes_is_read_back(rows: list[tuple[int, str]]) -> None:
    bodies = []
    for row in rows:
        text = io.StringIO(newline="")
        csv.writer(text, quoting=csv.QUOTE_ALL).writerow(row)
        bodies.append(text.getvalue().encode())
    found = body_format("csv", "id int, s string").parse(pa.array([*bodies, b'"'], pa.binary()))
    assert [tuple(row.values()) for row in found.columns.to_pylist()] == [*rows, (None, None)]
    assert found.errors.null_count == len(rows)


@given(st.lists(st.binary(max_size=12)))
def test_bodies_of_any_bytes_cause_no_exception(bodies: list[bytes]) -> None:
    for form in body_format("json", "a int"), body_format("csv", "a int, b string"), body_format("text"):
        widened(form, [*bodies, b'{"a":1}'])


@pytest.mark.parametrize(
    ("kind", "schema", "problem"),
    [
        ("xml", None, "body_as='xml' is unknown"),
        ("json", None, "body_as='json' needs schema"),
        ("text", "a int", "schema is not for text"),
        ("json", "a map<string,int>", "column `a` is map<string, int32>, which the format cannot hold"),
        ("csv", "b int, a array<int>", "column `a` is list<item: int32>, which the format cannot hold"),
        ("json", "a int, a int", "schema has `a` twice"),
        ("json", pa.schema([]), "schema has no column"),
        ("json", 5, "schema=5 is not text"),
        ("json", Path("/nowhere/file"), "schema: No such file or directory"),
    ],
)
def test_wrong_formats(kind: str, schema: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        body_format(kind, schema)
    assert problem in caught.value.problem
    assert caught.value.fix


def test_columns_of_bodies_and_messages_differ() -> None:
    form = body_format("json", "keys string")
    with pytest.raises(ConfigError, match="the bodies have the column `keys`, and so have the messages"):
        form.widened(pa.schema([("body", pa.binary()), ("keys", pa.string())]))


def test_a_schema_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "orders.ddl").write_text("id string,\n total double\n")
    assert body_format("json", tmp_path / "orders.ddl").schema.names == ["id", "total"]
    assert body_format("json", str(tmp_path / "orders.ddl")) == body_format("json", "id string, total double")
