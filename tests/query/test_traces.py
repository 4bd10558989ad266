from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.query.metadata import SCHEMAS
from segmentlog.query.selection import Topics
from segmentlog.query.system_frames import SystemWindow, parse_traces, trace_batches
from segmentlog.store import Snapshot
from support.system_store import PUB, START_MS, TRACES, SystemStore

TIME = datetime.fromtimestamp(1_700_000_000, UTC)


def parse(*bodies: bytes) -> list[dict[str, Any]]:
    rows, entry, columns = parse_traces(pa.array(bodies, pa.binary()))
    lists = {name: values.to_pylist() for name, values in columns.items()}
    found = [{name: values[at] for name, values in lists.items()} for at in range(len(entry))]
    return [
        {name: value for name, value in row.items() if value is not None} | {"at": (place, number)}
        for row, place, number in zip(found, rows.tolist(), entry.to_pylist(), strict=True)
    ]


def entry(*fields: str) -> bytes:
    return "\1".join(fields).encode() + b"\2"


def test_every_type_has_its_fields() -> None:
    ends = ("1700000000000", "eu", "shop", "orders", "ID")
    body = PUB + b"\2" + entry("SubBefore", "1700000000000", "eu", "etl", "req", "ID", "2", "k 1")
    body += entry("SubAfter", "req", "ID", "9", "false", "k 1", "3", "1700000000000", "etl")
    body += entry("EndTransaction", *ends, "paid", "k", "host:1", "2", "TX", "COMMIT_MESSAGE", "true")
    body += entry("Recall", *ends, "true")
    pub, before, after, end, recall = parse(body)
    common = {"timestamp": TIME, "traceMsgId": "ID"}
    of_producer = common | {"regionId": "eu", "group": "shop", "topic": "orders"}
    assert pub == of_producer | {
        "at": (0, 0),
        "type": "Pub",
        "tags": "paid",
        "keys": "k 1",
        "storeHost": "10.0.0.1:10911",
        "bodyLength": 5,
        "costMs": 7,
        "messageType": "Normal",
        "offsetMsgId": "OFFSET",
        "isSuccess": True,
    }
    assert before == common | {
        "at": (0, 1),
        "type": "SubBefore",
        "regionId": "eu",
        "group": "etl",
        "requestId": "req",
        "retryTimes": 2,
        "keys": "k 1",
    }
    assert after == common | {
        "at": (0, 2),
        "type": "SubAfter",
        "group": "etl",
        "requestId": "req",
        "costMs": 9,
        "isSuccess": False,
        "keys": "k 1",
        "contextCode": 3,
    }
    assert end == of_producer | {
        "at": (0, 3),
        "type": "EndTransaction",
        "tags": "paid",
        "keys": "k",
        "storeHost": "host:1",
        "messageType": "TransCommit",
        "transactionId": "TX",
        "transactionState": "COMMIT_MESSAGE",
        "isFromCheck": True,
    }
    assert recall == of_producer | {"at": (0, 4), "type": "Recall", "isSuccess": True}


def test_forms_of_other_releases() -> None:
    old = PUB.replace(b"\1OFFSET", b"")
    (first, second, third) = parse(old + b"\2" + PUB + b"\1host:2\2" + entry("SubAfter", "r", "ID", "1", "true", "k"))
    assert (first["isSuccess"], first.get("offsetMsgId")) == (True, None)
    assert (second["isSuccess"], second["offsetMsgId"], second["clientHost"]) == (True, "OFFSET", "host:2")
    assert third == {
        "at": (0, 2),
        "type": "SubAfter",
        "requestId": "r",
        "traceMsgId": "ID",
        "costMs": 1,
        "isSuccess": True,
        "keys": "k",
    }


def test_null_and_empty_fields_are_null() -> None:
    (row,) = parse(entry("SubBefore", "1700000000000", "null", "etl", "", "ID", "0", ""))
    assert row == {"at": (0, 0), "type": "SubBefore", "timestamp": TIME, "group": "etl", "traceMsgId": "ID"} | {
        "retryTimes": 0
    }


def test_malformed_entries_are_rows_with_an_error() -> None:
    found = parse(b"odd\1a\2", b"", b"\2\2SubAfter\1r\2", PUB.replace(b"\x015\x01", b"\x01many\x01"), b"Pub\xff\1x")
    assert [(row["at"], row["error"]) for row in found] == [
        ((0, 0), "the type of the entry is unknown"),
        ((2, 2), "fields are missing"),
        ((3, 0), "bodyLength is malformed"),
        ((4, 0), "the type of the entry is unknown"),
    ]
    assert found[0]["type"] == "odd"
    assert (found[1]["requestId"], found[2]["keys"]) == ("r", "k 1")
    assert found[3]["type"] == "Pub�"


NUMBERS = st.sampled_from(["0", "-1", "", "null", "9" * 18, "9" * 40, "1.5", "x"]).map(str.encode)
FIELDS = st.one_of(st.binary(max_size=6), NUMBERS, st.sampled_from([b"true", b"false", "ü".encode()]))
KINDS = st.sampled_from([b"Pub", b"SubBefore", b"SubAfter", b"EndTransaction", b"Recall", b"", b"pub"])
ENTRIES = st.builds(lambda kind, fields: b"\1".join([kind, *fields]), KINDS, st.lists(FIELDS, max_size=16))
BODIES = st.lists(st.one_of(st.none(), st.binary(max_size=30), st.lists(ENTRIES, max_size=4).map(b"\2".join)))


@given(BODIES)
def test_any_body_is_parsed_as_a_loop_over_its_entries_parses_it(bodies: list[bytes | None]) -> None:
    rows, number, columns = parse_traces(pa.array(bodies, pa.binary()))
    pieces = [
        (row, at, text) for row, body in enumerate(bodies) for at, text in enumerate((body or b"").split(b"\2")) if text
    ]
    assert list(zip(rows.tolist(), number.to_pylist(), strict=True)) == [piece[:2] for piece in pieces]
    for (_, _, text), kind, topic, error in zip(
        pieces, *(columns[name].to_pylist() for name in ("type", "topic", "error")), strict=True
    ):
        fields = [each.decode("utf-8", "replace") for each in text.split(b"\1")]
        assert kind == fields[0]
        has_topic = kind in {"Pub", "EndTransaction", "Recall"} and len(fields) > 4
        assert topic == (None if not has_topic or fields[4] in {"", "null"} else fields[4])
        if kind not in {"Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"}:
            assert error is not None


def read(path: Path, window: SystemWindow) -> list[dict[str, Any]]:
    found = []
    for batch in trace_batches(Snapshot.open(path), window):
        assert batch.schema == SCHEMAS["trace"]
        assert batch.num_rows
        found += batch.to_pylist()
    return found


def test_traces_of_a_store(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    first = made.put(TRACES, PUB + b"\2odd\2")
    made.put(TRACES, b"")
    made.put(TRACES, PUB.replace(b"orders", b"payments") + b"\2", queue_id=1)
    path = made.close()
    found = sorted(read(path, SystemWindow()), key=lambda row: (row["queueId"], row["queueOffset"], row["entry"]))
    assert [(row["queueId"], row["queueOffset"], row["entry"], row["topic"]) for row in found] == [
        (0, 0, 0, "orders"),
        (0, 0, 1, None),
        (1, 0, 0, "payments"),
    ]
    assert {row["brokerName"] for row in found} == {tmp_path.name}
    assert found[1]["physicalOffset"] == first.physical_offset
    assert [row["topic"] for row in read(path, SystemWindow(topics=Topics(("orders",))))] == ["orders"]
    assert [row["queueId"] for row in read(path, SystemWindow(start_ms=START_MS + 2000))] == [1]
