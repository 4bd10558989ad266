import io
import json
import sys
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.query.bodies import body_format
from segmentlog.query.body_columns import BODY_ERROR
from segmentlog.store import ConfigError, MissingExtraError


def record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": name, "type": kind} for name, kind in fields]}


def encoded(schema: Any, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def parsed(schema: Any, bodies: list[bytes | None]) -> list[dict[str, Any]]:
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
    found = body_format("avro", json.dumps(schema)).widen(batch, keep_body=False)
    found.validate(full=True)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


FIELDS: list[tuple[str, Any, Any]] = [
    ("bool", "boolean", True),
    ("int", "int", -(1 << 31)),
    ("long", "long", (1 << 63) - 1),
    ("float", "float", 0.5),
    ("double", ["null", "double"], None),
    ("bytes", "bytes", b"\xff\x00"),
    ("string", ["string", "null"], "ä\0"),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "A"),
    ("again", "Kind", "B"),
    ("fixed", {"type": "fixed", "name": "Fixed", "size": 2}, b"xy"),
    ("list", {"type": "array", "items": record(("x", "int"), name="Item")}, [{"x": 1}, {"x": 2}]),
    ("map", {"type": "map", "values": ["null", "long"]}, {"a": 1, "b": None}),
    ("day", {"type": "int", "logicalType": "date"}, date(2026, 1, 31)),
    ("time", {"type": "long", "logicalType": "time-micros"}, time(12, 0, 0, 1)),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"}, datetime(2026, 1, 31, 12)),  # noqa: DTZ001 - without a zone
    ("money", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, Decimal("1.50")),
    ("uuid", {"type": "string", "logicalType": "uuid"}, "6a7e9b34-9bd5-44e0-a8b5-1f6d1f6f8b1a"),
]
EVERY = record(*(field[:2] for field in FIELDS))
ROW = {name: value for name, _, value in FIELDS}


def test_every_type() -> None:
    body = encoded(EVERY, ROW)
    (row,) = parsed(EVERY, [body])
    assert row == ROW | {"map": [("a", 1), ("b", None)], BODY_ERROR.name: None}


@pytest.mark.parametrize("kind", ["bytes", {"type": "fixed", "name": "F", "size": 20}])
def test_decimals_are_exact_up_to_their_digits(kind: Any) -> None:
    logical = {"logicalType": "decimal", "precision": 38, "scale": 2}
    schema = record(("d", {"type": kind, **logical} if isinstance(kind, str) else {**kind, **logical}))
    plain = record(("d", kind))
    most = 10**38
    numbers = [most - 1, 1 - most, -1, 0, most, -most]
    bodies: list[bytes | None] = [encoded(plain, {"d": each.to_bytes(20, "big", signed=True)}) for each in numbers]
    rows = parsed(schema, bodies)
    assert [row["d"] and int(row["d"].scaleb(2, Context(prec=38))) for row in rows] == [*numbers[:3], 0, None, None]
    assert all(row[BODY_ERROR.name] for row in rows[4:])


def test_a_long_decimal_is_refused_in_linear_time() -> None:
    schema = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 38}))
    body = encoded(record(("d", "bytes")), {"d": b"\x7f" * (4 << 20)})
    (row,) = parsed(schema, [body])  # half an hour by fastavro's own reader
    assert row[BODY_ERROR.name] == "a decimal of 4194304 bytes has more than 38 digits"


def test_a_body_that_does_not_parse_costs_its_own_row() -> None:
    body = encoded(EVERY, ROW)
    bodies = [body, b"", None, body[:-1], body + b"\0", *(body[:cut] for cut in range(1, len(body) - 1)), body]
    rows = parsed(EVERY, [*bodies])
    assert [row[BODY_ERROR.name] is None for row in rows] == [body == each for each in bodies]
    assert rows[2][BODY_ERROR.name] == "the body is null"
    assert rows[4][BODY_ERROR.name] == "1 bytes are after the record"
    assert all(set(row.values()) - {row[BODY_ERROR.name]} == {None} for row in rows[1:-1])


def test_a_body_of_another_schema() -> None:
    wanted = record(("id", "long"), ("name", "string"))
    others = [
        encoded(record(("name", "string"), ("id", "long")), {"name": "a long name", "id": 5}),
        encoded(record(("id", "long")), {"id": 5}),
        encoded(record(("id", "long"), ("name", "bytes")), {"id": 5, "name": b"\xff"}),
        b"\x02\xff\xff\xff\xff\x0f",  # a text of 2 GiB
        b"\x02\x03",  # a text of -2 bytes
    ]
    assert all(row[BODY_ERROR.name] for row in parsed(wanted, [*others]))


def test_values_that_a_column_cannot_hold() -> None:
    schema = record(("at", {"type": "long", "logicalType": "timestamp-micros"}))
    plain = record(("at", "long"))
    bodies = [encoded(plain, {"at": value}) for value in (0, (1 << 63) - 1, 1)]
    rows = parsed(schema, [*bodies])
    assert [row["at"] and row["at"].year for row in rows] == [1970, None, 1970]
    assert [row[BODY_ERROR.name] is None for row in rows] == [True, False, True]


def test_single_object_encoding() -> None:
    schema = record(("id", "long"))
    mark = bytes.fromhex(
        fastavro.schema.fingerprint(
            fastavro.schema.to_parsing_canonical_form(fastavro.parse_schema(schema)), "CRC-64-AVRO"
        )
    )
    body = b"\xc3\x01" + mark + encoded(schema, {"id": 7})
    other = b"\xc3\x01" + bytes(8) + encoded(schema, {"id": 7})
    assert [row["id"] for row in parsed(schema, [body, other])] == [7, None]


@given(st.lists(st.binary(max_size=30)))
def test_bodies_of_any_bytes_cause_no_exception(bodies: list[bytes]) -> None:
    assert len(parsed(EVERY, [*bodies])) == len(bodies)


values = st.one_of(
    st.tuples(st.just("long"), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just("double"), st.floats(allow_nan=False)),
    st.tuples(st.just("string"), st.text()),
    st.tuples(st.just("bytes"), st.binary()),
    st.tuples(st.just("boolean"), st.booleans()),
    st.tuples(st.just(["null", "long"]), st.none() | st.integers(-5, 5)),
    st.tuples(st.just({"type": "array", "items": "string"}), st.lists(st.text(), max_size=3)),
)


@given(st.lists(values, min_size=1, max_size=5))
def test_records_of_any_schema_are_read_back(fields: list[tuple[Any, Any]]) -> None:
    schema = record(*((f"f{number}", kind) for number, (kind, _) in enumerate(fields)))
    row = {f"f{number}": value for number, (_, value) in enumerate(fields)}
    assert parsed(schema, [encoded(schema, row)]) == [row | {BODY_ERROR.name: None}]


def doubled(name: str, levels: int) -> list[tuple[str, Any]]:
    """Fields of a record that has 2^levels values by types that name each other."""
    inner: Any = record(("x", "int"), name=f"{name}0")
    for level in range(1, levels):
        inner = record(("x", inner), ("y", f"{name}{level - 1}"), name=f"{name}{level}")
    return [("x", inner), ("y", f"{name}{levels - 1}")]


def nested(levels: int) -> Any:
    return "int" if not levels else {"type": "array", "items": nested(levels - 1)}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "is not an Avro schema"),
        ('"long"', "it is not a record"),
        (json.dumps(record(("a", ["long", "string"]))), "a union of 2 types"),
        (json.dumps(record(("a", "Order"))), "the type Order contains itself"),
        (json.dumps(record(("a", ["null", "Order"]))), "the type Order contains itself"),
        (json.dumps(record(("a", {"type": "array", "items": "null"}))), "null"),
        (json.dumps(record()), "has no field"),
        (json.dumps(record(("a", "Unknown"))), "Unknown"),
        (
            json.dumps(record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 50}))),
            "a decimal of 50 digits",
        ),
        (
            json.dumps(record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 9}))),
            "a decimal of 5 digits with 9 after the point",
        ),
        (json.dumps(record(*doubled("R", 30))), "more than 10000 fields"),
        (json.dumps(record(("a", nested(65)))), "types are nested more than 64 deep"),
    ],
)
def test_schemas_without_columns(schema: str, problem: str) -> None:
    with pytest.raises(ConfigError, match="schema is not an Avro schema that has columns") as caught:
        body_format("avro", schema)
    assert problem in caught.value.problem


def test_a_schema_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(EVERY))
    assert body_format("avro", tmp_path / "order.avsc").schema.names == list(ROW)


def test_avro_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("fastavro")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.delitem(sys.modules, "segmentlog.query.avro_bodies")
    with pytest.raises(MissingExtraError, match="bodies of avro need the package fastavro"):
        body_format("avro", json.dumps(EVERY))
