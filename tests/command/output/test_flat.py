"""Rows as flat columns, for CSV."""

import pyarrow as pa

from segmentlog.command.output.flat import csv_batch, csv_schema

BATCH = pa.record_batch(
    {
        "queueId": pa.array([1, None], pa.int32()),
        "body": pa.array([b"a\x1b", b"\xff"]),
        "properties": pa.array([[("a", 'say "hi"')], None], pa.map_(pa.string(), pa.string())),
        "storeTimestamp": pa.array([0, None], pa.timestamp("us", "UTC")),
    }
)


def test_each_column_is_flat() -> None:
    schema = csv_schema(BATCH.schema)
    assert schema.names == ["queueId", "body", "bodyHex", "properties", "storeTimestamp"]
    assert csv_batch(BATCH, schema, is_escaped=False).to_pylist() == [
        {
            "queueId": 1,
            "body": "a\x1b",
            "bodyHex": None,
            "properties": '{"a":"say \\"hi\\""}',
            "storeTimestamp": "1970-01-01T00:00:00.000Z",
        },
        {"queueId": None, "body": None, "bodyHex": "ff", "properties": None, "storeTimestamp": None},
    ]


def test_a_terminal_gets_no_control_characters() -> None:
    assert csv_batch(BATCH, csv_schema(BATCH.schema), is_escaped=True)["body"].to_pylist() == ["a\\x1b", None]
