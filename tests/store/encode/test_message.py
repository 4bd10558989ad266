from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.config import StoreConfig
from segmentlog.store.dispatch.rules import tags_codes
from segmentlog.store.encode.batch import encode_batch
from segmentlog.store.encode.message import Outgoing, encode_message, packed_host
from segmentlog.store.errors import ConfigError, IllegalMessageError, SegmentLogError
from segmentlog.store.format.buffers import contiguous
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.message import Records
from segmentlog.store.format.properties import Properties
from segmentlog.store.types import QueueKey
from support.batches import batch_of
from support.written_stores import message

CONFIG = StoreConfig()
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=5)
NAMES = TEXT.filter(bool) | st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "REAL_TOPIC", "REAL_QID", "__CRC32#"])
DELAYS = st.sampled_from(["1", "18", "19", "0", "-1", "+3", "003", "\u0663", "", "2147483647"])
MESSAGES = st.builds(
    Outgoing,
    topic=st.sampled_from(["A", "%RETRY%g", "t" * 127, "%DLQ%" + "g" * 150, "SCHEDULE_TOPIC_XXXX", "TBW102"]),
    body=st.binary(max_size=300),
    queue_id=st.integers(0, 3),
    tags=st.none() | TEXT,
    keys=st.none() | TEXT,
    uniq_key=st.none() | TEXT,
    properties=st.dictionaries(NAMES, TEXT, max_size=3)
    | st.builds(lambda others, level: {**others, "DELAY": level}, st.dictionaries(NAMES, TEXT, max_size=2), DELAYS),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    sys_flag=st.sampled_from([0, 1, 4, 8, 12, 16, 32, 48, 64, 128, 1 << 31 - 1]),
    born_timestamp=st.integers(-(1 << 63), (1 << 63) - 1),
    born_host=st.sampled_from(["1.2.3.4:5", "[::1]:65535", "10.0.0.1:0", "127.0.0.1:0"]),
    reconsume_times=st.integers(-(1 << 31), (1 << 31) - 1),
    prepared_transaction_offset=st.integers(-(1 << 63), (1 << 63) - 1),
)
WRONG = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(["", "a b", "a\n", "a/b", "\u00fc", "t" * 128, "%RETRY%" + "g" * 255, ".."]),
        "queue_id": st.sampled_from([-1, -(1 << 31)]),
        "body": st.just(bytes(200)),  # over max_body_bytes below
        "properties": st.sampled_from(
            [
                *({"": "x"}, {"a\x01": "x"}, {"a\x02": "x"}, {"a": "x\x02"}, {"a": "\x02"}),
                *(
                    {"DELAY": "soon"},
                    {"DELAY": "2147483648"},
                    {"DELAY": " 1"},
                    {"a": "v" * 33_000},
                    {"a": "v" * 32_750},
                ),
            ]
        ),
        "tags": st.sampled_from(["a\x02", "\x02", "\x01"]),
        "keys": st.just("k\x02"),
        "born_host": st.sampled_from(["", ":", "host:1", "1.2.3.4", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4: 1"]),
    },
)


def shown(buffer: Any, positions: Any) -> list[dict[str, Any]]:
    """Content of records, their properties as a map, without the empty ones, which cannot be read back."""
    records = Records(np.frombuffer(buffer, np.uint8), np.asarray(positions, np.int64))
    assert not records.problem.any()
    maps = Properties(records).maps().to_pylist(maps_as_pydicts="lossy")
    names = (
        "queue_id",
        "flag",
        "sys_flag",
        "born_timestamp",
        "reconsume_times",
        "prepared_transaction_offset",
        "magic",
    )
    columns = {name: records.field(name).tolist() for name in names}
    raw = bytes(buffer)
    return [
        {
            **{name: columns[name][row] for name in names},
            "body": raw[records.body_start[row] :][: records.body_length[row]],
            "topic": raw[records.topic_start[row] :][: records.topic_length[row]],
            "properties": {name: value for name, value in (maps[row] or {}).items() if name != "__CRC32#"},
        }
        for row in range(len(records))
    ]


CONFIGS = st.builds(
    StoreConfig,
    compress_over_bytes=st.sampled_from([None, 0, 50]),
    record_crc=st.booleans(),
    store_host=st.sampled_from(["127.0.0.1:10911", "[fd00::1]:10911"]),
)


@given(st.lists(MESSAGES, min_size=1, max_size=8), CONFIGS)
def test_a_batch_and_its_messages_alone_are_the_same_bytes(messages: list[Outgoing], config: StoreConfig) -> None:
    (rows,) = encode_batch(batch_of(messages), config)
    singly = [encode_message(each, config) for each in messages]
    keys = rows.queues.as_keys()
    assert [keys[number] for number in rows.queue_of] == [each.key for each in singly]
    assert rows.counts.tolist() == [each.counts for each in singly]
    joined = rows.records.join().tobytes()
    stops = rows.records.positions + rows.records.sizes
    found = [joined[start:stop] for start, stop in zip(rows.records.positions, stops, strict=True)]
    assert found == [bytes(each.record) for each in singly]
    if rows.lookups is not None:
        records = [Records(np.frombuffer(each.record, np.uint8), np.zeros(1, np.int64)) for each in singly]
        codes = [int(tags_codes(each, "A")[0]) for each in records]
        assert rows.lookups.tags_codes.tolist() == codes
        wanted = []
        for row, (one, record) in enumerate(zip(singly, records, strict=True)):
            said = (Properties(record).maps().to_pylist(maps_as_pydicts="lossy")[0]) or {}
            indexed = [said["UNIQ_KEY"]] if "UNIQ_KEY" in said else []
            indexed += [key for key in said.get("KEYS", "").split(" ") if key]
            wanted += [(row, index_key_hash(one.key.topic, key)) for key in indexed]
        assert sorted(zip(rows.lookups.hash_rows.tolist(), rows.lookups.hashes.tolist(), strict=True)) == sorted(wanted)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_key_that_a_map_repeats_is_the_one_that_its_record_is_read_with(rows: int) -> None:
    maps = [
        [("KEYS", "a"), ("KEYS", "b"), ("KEYS", "")],
        [("KEYS", "c"), ("KEYS", "d"), ("KEYS", "e")],
        [("TAGS", "t"), ("UNIQ_KEY", "u")],
    ]
    columns = {"topic": ["A"] * rows, "body": [b""] * rows}
    batch = pa.record_batch({**columns, "properties": pa.array(maps[:rows], pa.map_(pa.string(), pa.string()))})
    (encoded,) = encode_batch(batch, CONFIG)
    assert encoded.lookups is not None
    read = (
        Properties(Records(encoded.records.join(), encoded.records.positions)).maps().to_pylist(maps_as_pydicts="lossy")
    )
    keys = [found.get("KEYS") or found["UNIQ_KEY"] for found in read]
    assert encoded.lookups.hashes.tolist() == [index_key_hash("A", key) for key in keys]
    assert keys == ["b", "e", "u"][:rows]


@given(MESSAGES, WRONG)
def test_a_batch_refuses_the_same_messages_as_a_single_append(message: Outgoing, wrong: dict[str, Any]) -> None:
    config = replace(CONFIG, max_body_bytes=150)
    message = replace(message, body=message.body[:150])
    message = replace(message, **wrong)
    outcomes: list[Any] = []
    for encode in (
        lambda: [(each.key, bytes(each.record)) for each in [encode_message(message, config)]],
        lambda: [
            (each.queues.as_keys()[0], each.records.join().tobytes())
            for each in encode_batch(batch_of([message]), config)
        ],
    ):
        try:
            outcomes.append(encode())
        except (ConfigError, IllegalMessageError) as error:
            outcomes.append(type(error) if len(wrong) < 2 else SegmentLogError)  # which is seen first may differ
    assert outcomes[0] == outcomes[1]


def test_a_piece_of_a_batch_of_many_topics_knows_its_own() -> None:
    topics = [f"T{row}" for row in range(300)]
    batch = pa.record_batch(
        {"topic": topics, "body": [b"x" * 30_000] * 300, "uniqKey": [f"k{row}" for row in range(300)]}
    )
    pieces = encode_batch(batch, CONFIG)
    assert len(pieces) > 1
    assert [key for rows in pieces for key in rows.queues.as_keys()] == [QueueKey(topic, 0) for topic in topics]
    hashes = [each for rows in pieces if rows.lookups is not None for each in rows.lookups.hashes.tolist()]
    assert hashes == [index_key_hash(f"T{row}", f"k{row}") for row in range(300)]
    for rows in pieces:
        records = Records(rows.records.join(), rows.records.positions)
        for row, number in enumerate(rows.queue_of.tolist()):
            assert records.has_topic(rows.queues.as_keys()[number].topic.encode(), np.array([row])).all()


@pytest.mark.parametrize(
    ("text", "level"),
    [
        *((text, 0) for text in ("", "0", "-0", "+0", "-3", "-2147483648")),
        *(("3", 3), ("+3", 3), ("003", 3), ("18", 18), ("99", 18), ("2147483647", 18), ("0" * 5_000 + "4", 4)),
        *(("\u0663", 3), ("\uff11\u0663", 13)),  # digits of other scripts
    ],
)
def test_delay_levels_are_read_as_java_reads_them(text: str, level: int) -> None:
    delayed = replace(message(1, 1, 1), topic="Orders", queue_id=2, sys_flag=0, properties={"DELAY": text})
    one, (rows,) = encode_message(delayed, CONFIG), encode_batch(batch_of([delayed]), CONFIG)
    scheduled = QueueKey("SCHEDULE_TOPIC_XXXX", level - 1)
    assert one.key == rows.queues.as_keys()[0] == (scheduled if level else QueueKey("Orders", 2))
    if level:
        record = Records(np.frombuffer(one.record, np.uint8), np.zeros(1, np.int64))
        assert tags_codes(record, scheduled.topic).tolist() > [0], "a delivery time"
        kept = shown(one.record, [0])[0]["properties"]
        assert (kept["REAL_TOPIC"], kept["REAL_QID"]) == ("Orders", "2")
        assert kept["DELAY"] == ("18" if text in {"99", "2147483647"} else text)


@pytest.mark.parametrize(
    "text", ["x", "1.5", " 3", "3 ", "+", "-", "+-3", "1_0", "2147483648", "9" * 30, "\u00b2", "\U0001d7db"]
)
def test_a_delay_level_that_java_cannot_read_is_refused(text: str) -> None:
    delayed = replace(message(1, 1, 1), sys_flag=0, properties={"DELAY": text})
    for encode in (lambda: encode_message(delayed, CONFIG), lambda: encode_batch(batch_of([delayed]), CONFIG)):
        with pytest.raises(IllegalMessageError, match="property DELAY is not a whole number"):
            encode()
    prepared = replace(delayed, sys_flag=4)  # RocketMQ does not look at the level of a prepared message
    assert encode_message(prepared, CONFIG).key.topic == prepared.topic
    assert encode_batch(batch_of([prepared]), CONFIG)[0].queues.as_keys()[0].topic == prepared.topic


@pytest.mark.parametrize("properties", [{}, {"properties": pa.array([[], None], pa.map_(pa.string(), pa.string()))}])
def test_nulls_and_missing_columns_have_defaults(properties: dict[str, pa.Array]) -> None:
    given = pa.record_batch(
        {"topic": ["A", "B"], "body": pa.array([b"x", b"y"]), "queueId": pa.array([None, 2], pa.int32()), **properties}
    )
    (rows,) = encode_batch(given, CONFIG)
    assert [rows.queues.as_keys()[number] for number in rows.queue_of] == [QueueKey("A", 0), QueueKey("B", 2)]
    first = shown(rows.records.join(), rows.records.positions)[0]
    assert (first["flag"], first["sys_flag"], first["properties"]) == (0, 0, {})
    assert first["born_timestamp"] > 1_700_000_000_000


@pytest.mark.parametrize(("kind", "unit"), [("s", 1_000), ("ms", 1), ("us", 0.001), ("ns", 0.000_001)])
def test_times_may_be_of_any_unit(kind: str, unit: float) -> None:
    count = round(1_763_700_000_000 / unit)
    given = pa.record_batch(
        {"topic": ["A"], "body": pa.array([b""]), "bornTimestamp": pa.array([count], pa.timestamp(kind, "UTC"))}
    )
    (rows,) = encode_batch(given, CONFIG)
    assert shown(rows.records.join(), rows.records.positions)[0]["born_timestamp"] == 1_763_700_000_000


@pytest.mark.parametrize(
    ("host", "packed"),
    [
        ("1.2.3.4:5", "0102030400000005"),
        ("[::1]:65535", "000000000000000000000000000000010000FFFF"),
        ("::1:9", "0000000000000000000000000000000100000009"),
    ],
)
def test_hosts_are_packed_as_records_have_them(host: str, packed: str) -> None:
    assert packed_host(host).hex().upper() == packed


@pytest.mark.parametrize(
    "topics", [["A"], ["AB"] * 5, ["AB", "AB", "AC"], ["AB", "ABC"], ["ABAB", "ABAB", "AB"], ["x", "AB", "AB", "y"]]
)
def test_rows_have_the_topics_that_they_were_given(topics: list[str]) -> None:
    for first in range(len(topics)):
        given = pa.record_batch({"topic": topics, "body": [b""] * len(topics)})[first:]
        (rows,) = encode_batch(given, CONFIG)
        assert [rows.queues.as_keys()[number].topic for number in rows.queue_of.tolist()] == topics[first:]


@pytest.mark.parametrize(("rows", "sys_flag", "apart"), [(3, 0, True), (2, 0, False), (3, 0x8, False)])
def test_bodies_of_a_large_batch_stay_where_they_are(rows: int, sys_flag: int, *, apart: bool) -> None:
    """Not if records must be read for dispatch, and not if they are not written at once."""
    body = pa.array([b"x" * (1 << 20)] * rows)
    batch = pa.record_batch({"topic": ["T"] * rows, "body": body, "sysFlag": pa.array([sys_flag] * rows, pa.int32())})
    for asked in (True, False):
        frames = [piece.records.lay() for piece in encode_batch(batch, CONFIG, bodies_apart=asked)]
        assert [each.bodies is not None for each in frames] == [apart and asked] * len(frames)
        written = b"".join(bytes(contiguous(each.to_write())) for each in frames)
        assert written.count(b"x" * (1 << 20)) == rows


@pytest.mark.parametrize(
    "host",
    [
        *("1.2.3.4", "1.2.3:5", "name:5", "1.2.3.4:x", "1.2.3.4:-1", "1.2.3.4:2147483648"),
        *("1.2.3.4:65536", "1.2.3.4:99999999", "1.2.3.4:1_0", "1.2.3.4:\u0663"),
    ],
)
def test_a_host_or_port_that_rocketmq_cannot_read_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="bornHost is not an IP address and a port from 0 to 65535") as raised:
        packed_host(host)
    assert raised.value.fix
    assert host not in str(raised.value)
    with pytest.raises(ConfigError):
        packed_host("")
    assert packed_host("1.2.3.4:65535") == bytes([1, 2, 3, 4, 0, 0, 255, 255])


def test_hosts_are_not_remembered_without_end() -> None:
    for number in range(10_000):
        packed_host(f"10.0.{number >> 8}.{number & 255}:1")
    assert packed_host.cache_info().currsize < 10_000


TEXT_TYPES = [pa.large_string(), pa.string_view()]
BYTE_TYPES = [pa.large_binary(), pa.binary_view(), *TEXT_TYPES]


def dictionaries(kinds: list[pa.DataType]) -> list[pa.DataType]:
    return [pa.dictionary(index, kind) for kind in [pa.string(), *kinds] for index in (pa.int8(), pa.uint32())]


def as_type(values: list[str | None], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        plain = pa.array(values, pa.string()).dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            plain.indices.cast(kind.index_type), plain.dictionary.cast(kind.value_type)
        )
    return pa.array(values, pa.string()).cast(pa.binary() if "binary" in str(kind) else pa.string()).cast(kind)


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("kind", [*BYTE_TYPES, *dictionaries(TEXT_TYPES)], ids=str)
def test_texts_and_bytes_may_be_of_any_width(kind: pa.DataType, chunks: int) -> None:
    columns = {"topic": ["A", "B"], "body": ["a long body, which no view holds itself", ""], "tags": ["T", None]}
    columns |= {"keys": [None, "k1 k2"], "uniqKey": ["u1", "u2"], "bornHost": ["1.2.3.4:5", None]}
    plain = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    others = {
        name: as_type(values, kind) if name == "body" or "binary" not in str(kind) else pa.array(values, pa.string())
        for name, values in columns.items()
    }
    table = pa.table(others)
    if chunks == 2:
        table = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    (wanted,), (found,) = (
        encode_batch(each.append_column("bornTimestamp", pa.array([1, 2])), CONFIG) for each in (plain, table)
    )
    assert found.records.join().tobytes() == wanted.records.join().tobytes()


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_maps_of_texts_may_be_of_any_width(kind: pa.DataType) -> None:
    plain = pa.array([[("a", "b"), ("TAGS", "t" * 20)], None], pa.map_(pa.string(), pa.string()))
    base = {"topic": ["A", "B"], "body": [b"x", b"y"], "bornTimestamp": [1, 2]}
    encoded = [
        encode_batch(pa.record_batch({**base, "properties": each}), CONFIG)[0].records.join().tobytes()
        for each in (plain, plain.cast(pa.map_(kind, kind)))
    ]
    assert encoded[0] == encoded[1]


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("topic", pa.array([1, 2]), "string"),
        ("topic", pa.array([b"a", b"b"]), "string"),
        ("queueId", pa.array(["1", "2"]), "int32"),
        ("flag", pa.array([1, 2], pa.timestamp("ms")), "int32"),
        ("properties", pa.array(["a=1", "a=1"]), "map<string, string>"),
        ("properties", pa.array([[], [("a", [1])]], pa.map_(pa.string(), pa.list_(pa.int32()))), "map<string, string>"),
        ("queueId", pa.array([Decimal(1), Decimal(2)]), "int32"),
        ("queueId", pa.array([Decimal("1.5"), None]), "int32"),
        ("queueId", pa.array([1.0, 2.0]), "int32"),
        ("queueId", pa.array([1, 1 << 63], pa.uint64()), "int32"),
        ("queueId", pa.array([1, 2]).dictionary_encode(), "int32"),
        ("bornTimestamp", pa.array([Decimal(1), Decimal(2)]), "int64"),
        ("bornTimestamp", pa.array([1 << 62, 0], pa.timestamp("s")), "int64"),
        ("tags", pa.array([1, 2]).dictionary_encode(), "string"),
        ("tags", pa.array([b"x", b"y"]), "string"),
        ("body", pa.array([1, 2]), "binary"),
        ("properties", pa.array([[("a", b"\xff")], None], pa.map_(pa.string(), pa.binary())), "map<string, string>"),
    ],
)
def test_a_column_of_another_type_is_one_clear_error(name: str, values: pa.Array, wanted: str) -> None:
    columns = {"topic": pa.array(["A", "B"]), "body": pa.array([b"x", b"y"]), name: values}
    with pytest.raises(ConfigError, match=f"column '{name}' ") as error:
        encode_batch(pa.record_batch(columns), CONFIG)
    assert error.value.fix == f"Give it as {wanted}"
    assert str(values.type) in str(error.value)
    assert str(1 << 63) not in str(error.value)
