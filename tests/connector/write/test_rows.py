from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, MapType, StringType, StructField, StructType
from pyspark.sql.types import TimestampType as Timestamp

from segmentlog.connector.options.option import Mode
from segmentlog.connector.options.write_options import parse_write_options
from segmentlog.connector.options.write_table import Selector
from segmentlog.connector.write import rows as sink_rows
from segmentlog.connector.write.rows import (
    Origin,
    QueueChooser,
    QueueRules,
    SinkRows,
    maps_of_pairs,
    pairs_of_maps,
)
from segmentlog.connector.write.schema import plan_columns
from segmentlog.query.selection import UnknownTopicError
from segmentlog.store import IllegalMessageError, StoreConfig
from segmentlog.store.encode.batch import encode_batch
from segmentlog.store.format.message import Records
from segmentlog.store.format.properties import Properties
from support.store_builder import java_hash

ARROW_MAP = pa.map_(pa.string(), pa.string())
ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows(maps: pa.MapArray) -> list[Any]:
    maps.validate(full=True)
    return [list(row) for row in maps.to_pylist()]


def test_map_entries_hidden_by_a_null_are_dropped() -> None:
    whole = pa.array([[("a", "1")], [("b", "2")], [("c", "3")]], ARROW_MAP)
    mask = pa.array([True, False, True]).buffers()[1]
    hidden = pa.Array.from_buffers(ARROW_MAP, 3, [mask, whole.buffers()[1]], children=[whole_entries(whole)])
    assert hidden.null_count == 1
    assert rows(maps_of_pairs(pairs_of_maps(hidden), 3)) == [[("a", "1")], [], [("c", "3")]]


def whole_entries(maps: pa.MapArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([maps.keys, maps.items], fields=[ARROW_MAP.key_field, ARROW_MAP.item_field])


def chooser(
    selector: Selector = Selector.ROUND_ROBIN,
    *,
    start: int = 0,
    create: bool = True,
    system: bool = False,
    **counts: int,
) -> QueueChooser:
    rules = QueueRules(selector=selector, counts=counts, default_queues=8, create_topic=create, system_topics=system)
    return QueueChooser(rules, 0, start)


def choose(
    chooser: QueueChooser,
    topics: list[str],
    queue_ids: list[int | None] | None = None,
    keys: list[str | None] | None = None,
    first: int = 0,
) -> list[int]:
    found = chooser.choose(
        pa.array(topics, pa.string()).dictionary_encode(),
        None if queue_ids is None else pa.array(queue_ids, pa.int32()),
        None if keys is None else pa.array(keys, pa.string()),
        np.arange(first, first + len(topics)),
    )
    assert found.dtype == np.int32
    return found.tolist()


def test_each_topic_has_its_turn() -> None:
    one = chooser(start=1, a=2, b=3)
    assert choose(one, ["a", "b", "a", "b", "b", "a"]) == [1, 1, 0, 2, 0, 1]
    assert choose(one, ["b", "a"]) == [1, 0]
    assert choose(one, ["a"]) == [1]


@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(1, 39))
def test_batches_make_no_difference(topics: list[str], size: int) -> None:
    whole, cut = chooser(a=2, b=3), chooser(a=2, b=3)
    found = [queue for at in range(0, len(topics), size) for queue in choose(cut, topics[at : at + size])]
    assert found == choose(whole, topics)


def test_the_column_says() -> None:
    one = chooser(Selector.COLUMN, t=4)
    assert choose(one, ["t"] * 5, [3, None, 9, None, 0], keys=None) == [3, 0, 9, 1, 0]


def test_where_the_column_is_null_the_key_says() -> None:
    one = chooser(Selector.COLUMN, t=4)
    assert choose(one, ["t"] * 3, [3, None, None], keys=["x", "x", None]) == [3, java_hash("x") % 4, 0]


def test_keys_go_where_rocketmqs_clients_send_them() -> None:
    # SelectMessageQueueByHash: |hashCode| mod queues. "polygenelubricants" has the lowest hash that Java has.
    keys = ["order-17", "键", "", "polygenelubricants", "a𝄞b"]
    assert java_hash("polygenelubricants") == -(1 << 31)
    one = chooser(Selector.SHARDING_KEY, t=7)
    assert choose(one, ["t"] * 5, keys=keys) == [abs(java_hash(key)) % 7 for key in keys]
    assert choose(one, ["t"] * 2, keys=[None, None]) == [0, 1]


def test_columns_that_the_selector_does_not_use_are_ignored() -> None:
    assert choose(chooser(t=4), ["t"] * 2, [3, 3], ["x", "x"]) == [0, 1]
    assert choose(chooser(Selector.SHARDING_KEY, t=4), ["t"] * 2, [3, 3], ["x", "x"]) == [java_hash("x") % 4] * 2


def test_topics_that_are_not_there_are_made() -> None:
    one = chooser(t=2)
    assert choose(one, ["new"] * 10) == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert one.made == {"new": 8}


def test_or_not() -> None:
    one = chooser(create=False, t=2)
    choose(one, ["t"])
    with pytest.raises(UnknownTopicError, match="row 12 of Spark partition 0 asks for topic `new`, which"):
        choose(one, ["t", "t", "new"], first=10)


def test_queue_ids_that_cannot_be() -> None:
    with pytest.raises(IllegalMessageError, match="row 11 of Spark partition 0 has queue id -1, below zero"):
        choose(chooser(Selector.COLUMN, t=2), ["t", "t"], [0, -1], first=10)
    with pytest.raises(IllegalMessageError, match=r"row 11 of Spark partition 0 .* 2, and its topic has 2 queues"):
        choose(chooser(Selector.COLUMN, create=False, t=2), ["t", "t"], [1, 2], first=10)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%g", "%DLQ%g"])
def test_system_topics_are_written_to_if_asked_alone(topic: str) -> None:
    with pytest.raises(
        IllegalMessageError, match=f"row 12 of Spark partition 0 is for the system topic `{topic}`.*allowSystemTopics"
    ):
        choose(chooser(t=2), ["t", "t", topic, "t", topic], first=10)
    with pytest.raises(IllegalMessageError, match="system topic"):  # also where the store has it
        choose(chooser(**{topic: 1}), [topic])
    assert choose(chooser(system=True), [topic]) == [0]


TEXT, BYTES, MAP = StringType(), BinaryType(), MapType(StringType(), StringType())
HEADERS = ArrayType(StructType([StructField("key", TEXT), StructField("value", BYTES)]))
VIEWS = (pa.string_view(), pa.binary_view())
ORIGIN = Origin(app="app", version=3, partition=2)


def rows_of(kinds: dict[str, DataType], origin: Origin = ORIGIN, **asked: str) -> SinkRows:
    options = parse_write_options({"path": "/data/store"} | asked, Mode.BATCH)
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    columns = plan_columns(schema, options)
    rules = QueueRules(
        selector=columns.selector,
        counts={},
        default_queues=8,
        create_topic=options.create_topic,
        system_topics=options.system_topics,
    )
    return SinkRows(columns, options, rules, origin)


def convert(rows: SinkRows, **columns: Any) -> list[dict[str, Any]]:
    """Convert one batch, and have the store take it: what comes out must be what it understands."""
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    found = []
    for piece in rows.convert(batch):
        piece.validate(full=True)
        encode_batch(piece, StoreConfig())
        found += piece.to_pylist()
    return found


def stored(rows: SinkRows, **columns: Any) -> list[dict[str, str]]:
    """Convert one batch, and return the properties of its records."""
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    config = StoreConfig(record_crc=False)
    (encoded,) = encode_batch(next(rows.convert(batch)), config)
    records = Records(encoded.records.join(), encoded.records.positions)
    return Properties(records).maps().to_pylist(maps_as_pydicts="strict")


def texts(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


def test_the_least_there_can_be() -> None:
    rows = rows_of({"value": TEXT}, topic="t")
    first, second = convert(rows, value=texts("a", "ü"))
    assert (first["topic"], first["body"], second["body"]) == ("t", b"a", "ü".encode())
    assert (first["queueId"], second["queueId"]) == (5, 6)  # partition 2 and batch 3 begin at 5
    assert first.keys() == {"topic", "body", "queueId", "uniqKey"}
    assert rows.made_topics == {"t": 8}


def test_the_option_wins_over_the_column() -> None:
    rows = rows_of({"body": TEXT, "topic": TEXT}, topic="t")
    assert [row["topic"] for row in convert(rows, body=texts("a", "b"), topic=texts("other", None))] == ["t", "t"]


def test_keys_are_made_as_rocketmqs_clients_make_them_and_again_the_same() -> None:
    def keys(origin: Origin, cuts: list[int]) -> list[str]:
        rows = rows_of({"body": TEXT}, origin, topic="t")
        return [row["uniqKey"] for size in cuts for row in convert(rows, body=texts(*["x"] * size))]

    one = keys(ORIGIN, [3, 4])
    assert all(len(key) == 32 and set(key) <= set("0123456789ABCDEF") for key in one)
    assert len(set(one)) == 7
    assert [int(key[22:], 16) for key in one] == list(range(7))
    assert keys(ORIGIN, [1, 6]) == one
    for other in (
        Origin(app="app", version=3, partition=3),
        Origin(app="app", version=4, partition=2),
        Origin(app="app2", version=3, partition=2),
    ):
        assert not set(keys(other, [7])) & set(one)


def test_numbers_of_keys_go_beyond_32_bits() -> None:
    found = sink_rows.number_keys(b"0" * 22, sink_rows.np.array([0, 0xABCDE, 0x12_3456_789A]))
    assert [key[22:] for key in found.to_pylist()] == ["0000000000", "00000ABCDE", "123456789A"]


def test_a_key_is_made_only_where_there_is_none() -> None:
    rows = rows_of({"body": TEXT, "uniqKey": TEXT, "properties": MAP}, topic="t")
    maps = pa.array([None, [("UNIQ_KEY", "P1")], [("UNIQ_KEY", "P2")], [("UNIQ_KEY", "")]], ARROW_MAP)
    found = stored(rows, body=texts(*"abcd"), uniqKey=texts("K0", "K1", None, ""), properties=maps)
    assert found[:3] == [{"UNIQ_KEY": "K0"}, {"UNIQ_KEY": "K1"}, {"UNIQ_KEY": "P2"}]
    assert len(found[3]["UNIQ_KEY"]) == 32


def test_a_column_with_a_value_replaces_its_entry_in_the_properties_map() -> None:
    kinds = {"body": TEXT, "tags": TEXT, "keys": TEXT, "shardingKey": TEXT, "properties": MAP}
    old = dict.fromkeys(["TAGS", "KEYS", "__SHARDINGKEY", "UNIQ_KEY"], "old") | {"user": "amy"}
    found = stored(
        rows_of(kinds, topic="t"),
        body=texts("a", "b"),
        tags=texts("new", None),
        keys=texts("new", ""),
        shardingKey=texts("new", None),
        properties=pa.array([old, old], ARROW_MAP),
    )
    assert found == [old | {"TAGS": "new", "KEYS": "new", "__SHARDINGKEY": "new"}, old]


@pytest.mark.parametrize("name", ["region", "TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY"])
def test_maps_with_the_same_names_come_out_as_maps_with_different_names(name: str) -> None:
    maps = pa.array([[(name, value), ("user", "amy")] for value in ("old", None, "", "é", "x")], ARROW_MAP)
    kinds: dict[str, DataType] = {"body": TEXT, "tags": TEXT, "properties": MAP}
    body, tags = texts(*"abcde"), texts("new", None, "", "n", "n")
    alike = convert(rows_of(kinds, topic="t"), body=body, tags=tags, properties=maps)
    other = pa.concat_arrays([maps, pa.array([[]], ARROW_MAP)])
    mixed = convert(
        rows_of(kinds, topic="t"), body=texts(*"abcdef"), tags=texts(*tags.to_pylist(), None), properties=other
    )
    assert alike == mixed[:-1]
    sliced = convert(rows_of(kinds, topic="t"), body=body[1:], tags=tags[1:], properties=maps[1:])
    assert [row["properties"] for row in sliced] == [row["properties"] for row in alike[1:]]


def test_a_value_of_a_map_that_is_not_utf8_is_refused_with_its_row() -> None:
    wrong = pa.array([b"amy", b"\xff"]).view(pa.string())
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), texts("user", "user"), wrong)
    with pytest.raises(IllegalMessageError, match=r"row 1 .* column `properties` that are not UTF-8"):
        convert(rows_of({"body": TEXT, "properties": MAP}, topic="t"), body=texts("a", "b"), properties=maps)


def test_a_sharding_key_is_kept() -> None:
    rows = rows_of({"body": TEXT, "shardingKey": TEXT}, topic="t")
    found = convert(rows, body=texts("a", "b", "c"), shardingKey=texts("x", None, "x"))
    assert [row["properties"] for row in found] == [[("__SHARDINGKEY", "x")], [], [("__SHARDINGKEY", "x")]]
    assert found[0]["queueId"] == found[2]["queueId"] == ord("x") % 8


def test_kafkas_headers() -> None:
    rows = rows_of({"value": BYTES, "headers": HEADERS}, topic="t")
    headers = pa.array(
        [
            [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": "ü".encode()}],
            None,
            [],
            [None, {"key": "c", "value": b"3"}],
        ],
        ARROW_HEADERS,
    )
    found = convert(rows, value=pa.array([b"x"] * 4), headers=headers)
    assert [row["properties"] for row in found] == [[("a", "1"), ("b", None), ("a", "ü")], [], [], [("c", "3")]]


def test_lists_of_keys_that_are_never_null_are_joined() -> None:
    kind = pa.list_(pa.field("element", pa.string(), nullable=False))  # as of Spark's `split`
    rows = rows_of({"body": TEXT, "keys": ArrayType(TEXT)}, topic="t")
    found = convert(rows, body=texts(*"abc"), keys=pa.array([["k", "l"], None, ["m"]], kind))
    assert [row["keys"] for row in found] == ["k l", None, "m"]


def test_slices_of_nested_columns() -> None:
    rows = rows_of({"body": TEXT, "properties": MAP, "keys": ArrayType(TEXT)}, topic="t")
    batch = pa.record_batch(
        {
            "body": texts(*"abcd"),
            "properties": pa.array([[("a", "1"), ("b", "2")], None, [("TAGS", "x")], [("c", "3")]], ARROW_MAP),
            "keys": pa.array([["k", "l"], ["m"], [None, "n", "o"], None], pa.list_(pa.string())),
        }
    ).slice(1, 3)
    found = [row for piece in rows.convert(batch) for row in piece.to_pylist()]
    assert [(row["body"], row["keys"], row["properties"]) for row in found] == [
        (b"b", "m", []),
        (b"c", "n o", [("TAGS", "x")]),
        (b"d", None, [("c", "3")]),
    ]


@pytest.mark.parametrize(("large", "large_bytes"), [(pa.large_string(), pa.large_binary()), VIEWS], ids=str)
def test_arrows_other_types(large: pa.DataType, large_bytes: pa.DataType) -> None:
    kinds = {"body": TEXT, "topic": TEXT, "keys": ArrayType(TEXT), "properties": MAP, "tags": TEXT}
    (found,) = convert(
        rows_of(kinds),
        body=pa.array(["ü"], large),
        topic=pa.array(["t"], large),
        keys=pa.array([["a", "b"]], pa.list_(large)),
        properties=pa.array([[("x", "y")]], ARROW_MAP).cast(pa.map_(large, large)),
        tags=pa.array(["T"], large),
    )
    assert (found["body"], found["topic"], found["keys"], found["properties"], found["tags"]) == (
        "ü".encode(),
        "t",
        "a b",
        [("x", "y")],
        "T",
    )
    large_headers = pa.list_(pa.struct([("key", large), ("value", large_bytes)]))
    (found,) = convert(
        rows_of({"value": BYTES, "key": BYTES, "headers": HEADERS}, topic="t"),
        value=pa.array([b"\xff"], large_bytes),
        key=pa.array([b"k"], large_bytes),
        headers=pa.array([[{"key": "a", "value": b"1"}]], large_headers),
    )
    assert (found["body"], found["keys"], found["properties"]) == (b"\xff", "k", [("a", "1")])


def test_timestamp_host_flag_and_reconsume_times_are_taken_from_their_columns() -> None:
    kinds = {"body": TEXT, "timestamp": Timestamp(), "flag": IntegerType(), "reconsumeTimes": IntegerType()}
    kinds["bornHost"] = TEXT
    moment = datetime(2026, 1, 31, 12, 0, 0, 123_456, UTC)
    (found,) = convert(
        rows_of(kinds, topic="t"),
        body=texts("a"),
        timestamp=pa.array([moment], pa.timestamp("us", "Europe/Berlin")),
        flag=pa.array([7], pa.int16()),
        reconsumeTimes=pa.array([2], pa.int32()),
        bornHost=texts("10.0.0.1:5"),
    )
    names = ("bornTimestamp", "flag", "reconsumeTimes", "bornHost")
    assert [found[name] for name in names] == [moment, 7, 2, "10.0.0.1:5"]


def test_rows_that_are_left_out() -> None:
    given = {
        "body": texts("a", None, "c", None, "e"),
        "topic": texts("t", "t", None, None, "t"),
        "tags": texts(*"vwxyz"),
    }
    kinds: dict[str, DataType] = dict.fromkeys(given, TEXT)
    rows = rows_of(kinds, onNullBody="skip", onNullTopic="skip")
    assert [(row["body"], row["tags"]) for row in convert(rows, **given)] == [(b"a", "v"), (b"e", "z")]
    assert (rows.rows, rows.skipped) == (5, 3)
    rows = rows_of(kinds, onNullBody="empty", onNullTopic="skip")
    assert [(row["body"], row["tags"]) for row in convert(rows, **given)] == [(b"a", "v"), (b"", "w"), (b"e", "z")]
    rows = rows_of(kinds, onNullBody="skip", topic="t")
    found = convert(rows, **given)
    assert [(row["body"], row["tags"]) for row in found] == [(b"a", "v"), (b"c", "x"), (b"e", "z")]
    assert [int(row["uniqKey"][22:], 16) for row in found] == [0, 2, 4]
    assert convert(rows_of(kinds, onNullBody="skip", topic="t"), **{n: v.slice(1, 1) for n, v in given.items()}) == []


def second_batch(kinds: dict[str, DataType], values: dict[str, pa.Array], **asked: str) -> str:
    """Return the error of a batch that comes after three good rows."""
    rows = rows_of(kinds, **{"topic": "t"} | asked)
    assert len(convert(rows, **{name: value.slice(0, 1) for name, value in values.items()})) == 1
    with pytest.raises((IllegalMessageError, UnknownTopicError)) as caught:
        convert(rows, **values)
    return str(caught.value)


def test_errors_name_the_row() -> None:
    where = "of Spark partition 2"
    text = second_batch({"body": TEXT}, {"body": texts("a", "b", None)})
    assert f"row 3 {where} has no body" in text
    assert "onNullBody=empty" in text
    rows = rows_of({"body": TEXT, "topic": TEXT})
    with pytest.raises(IllegalMessageError, match=f"row 1 {where} has no topic.*onNullTopic=skip"):
        convert(rows, body=texts("a", "b"), topic=texts("t", None))
    text = second_batch({"body": TEXT}, {"body": texts("a", "b", "1234567")}, maxMessageSize="6")
    assert f"row 3 {where} has a body of 7 bytes, and at most 6 can be stored" in text
    text = second_batch({"body": TEXT, "key": BYTES}, {"body": texts("a", "b"), "key": pa.array([b"a", b"\xff"])})
    assert f"row 2 {where} has bytes in column `keys` that are not UTF-8" in text
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    text = second_batch({"body": TEXT, "tags": TEXT}, {"body": texts("a", "b"), "tags": broken})
    assert f"row 2 {where} has bytes in column `tags` that are not UTF-8" in text
    entries = pa.array([[{"key": "a", "value": b"1"}], [], [{"key": None, "value": b"1"}]], ARROW_HEADERS)
    text = second_batch({"body": TEXT, "headers": HEADERS}, {"body": texts(*"abc"), "headers": entries})
    assert f"row 3 {where} has a header without a key" in text
    entries = pa.array([[], [{"key": "a", "value": b"\xff"}]], ARROW_HEADERS)
    text = second_batch({"body": TEXT, "headers": HEADERS}, {"body": texts(*"ab"), "headers": entries})
    assert f"row 2 {where} has bytes in column `headers` that are not UTF-8" in text


def test_a_huge_batch_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_rows, "_BATCH_BYTES_MAX", 1000)
    rows = rows_of({"body": TEXT}, topic="t")
    batch = pa.record_batch({"body": pa.array(["x" * 100 + str(at) for at in range(50)], pa.large_string())})
    pieces = list(rows.convert(batch))
    assert len(pieces) > 4
    assert [row["body"][100:] for piece in pieces for row in piece.to_pylist()] == [b"%d" % at for at in range(50)]
    keys = [row["uniqKey"] for piece in pieces for row in piece.to_pylist()]
    assert [int(key[22:], 16) for key in keys] == list(range(50))
