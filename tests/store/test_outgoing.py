"""What becomes of a message before it is put: merged, scheduled, deflated, encoded, or refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.config import StoreConfig
from segmentlog.store.errors import ConfigError
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.message import Records
from segmentlog.store.format.pieces import contiguous
from segmentlog.store.format.properties import Properties
from segmentlog.store.outgoing import Outgoing, delay_level, encode_message, packed_host
from segmentlog.store.outgoing_batch import encode_batch
from segmentlog.store.types import QueueKey
from support.batches import batch_of
from support.written_stores import message

CONFIG = StoreConfig()
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=5)
MESSAGES = st.builds(
    Outgoing,
    topic=st.sampled_from(["A", "%RETRY%g", "t" * 127]),
    body=st.binary(max_size=300),
    queue_id=st.integers(0, 3),
    tags=st.none() | TEXT,
    keys=st.none() | TEXT,
    uniq_key=st.none() | TEXT,
    properties=st.dictionaries(TEXT.filter(bool) | st.just("TAGS"), TEXT, max_size=3)
    | st.sampled_from(["1", "18", "19", "0", "-1", "x"]).map(lambda level: {"DELAY": level}),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    sys_flag=st.sampled_from([0, 1, 4, 8, 12]),
    born_timestamp=st.integers(0, 1 << 42),
    born_host=st.sampled_from(["1.2.3.4:5", "[::1]:65535"]),
    reconsume_times=st.integers(0, 99),
    prepared_transaction_offset=st.integers(0, 1 << 62),
)


def shown(buffer: Any, positions: Any) -> list[dict[str, Any]]:
    """What records say, their properties as a map; the empty ones, which nobody can read back, left out."""
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


@given(st.lists(MESSAGES, min_size=1, max_size=8), st.sampled_from([None, 0, 50]), st.booleans())
def test_a_batch_says_what_its_messages_say(messages: list[Outgoing], over: int | None, crc: bool) -> None:
    config = replace(CONFIG, compress_over_bytes=over, record_crc=crc)
    # An empty tag takes none away from the map in a batch; single ones do. Neither can be read back.
    messages = [
        replace(each, **{name: getattr(each, name) or None for name in ("tags", "keys", "uniq_key")})
        for each in messages
    ]
    (rows,) = encode_batch(batch_of(messages), config)
    singly = [encode_message(each, config) for each in messages]
    assert [rows.queues.as_keys()[number] for number in rows.queue_of] == [each.key for each in singly]
    assert rows.counts.tolist() == [each.counts for each in singly]
    assert shown(rows.records.join(), rows.records.positions) == [shown(each.record, [0])[0] for each in singly]


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
    [("1", 1), ("18", 18), ("19", 19), ("0", 0), ("", 0), ("-1", 0), ("x", 0), ("1.5", 0), ("9" * 10, 0), (" 3", 0)],
)
def test_delay_levels_are_plain_numbers(text: str, level: int) -> None:
    assert delay_level(text) == level


def test_a_checksum_that_is_brought_along_is_left_out() -> None:
    given = replace(message(1, 1, 1), properties={"__CRC32#": "123", "a": "b"})
    assert encode_message(given, CONFIG).record.count(b"__CRC32#") == 1
    assert encode_batch(batch_of([given]), CONFIG)[0].records.join().tobytes().count(b"__CRC32#") == 1


@pytest.mark.parametrize("properties", [{}, {"properties": pa.array([[], None], pa.map_(pa.string(), pa.string()))}])
def test_what_a_column_leaves_open_has_a_default(properties: dict[str, pa.Array]) -> None:
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


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_may_be_of_any_kind(kind: pa.DataType) -> None:
    texts = pa.array(["A", "B", "A"]).cast(kind)
    given = pa.record_batch(
        {"topic": texts, "body": pa.array([b"1", b"2", b"3"]).cast(pa.large_binary()), "tags": texts}
    )
    (rows,) = encode_batch(given, CONFIG)
    assert [rows.queues.as_keys()[number].topic for number in rows.queue_of] == ["A", "B", "A"]


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


@pytest.mark.parametrize("host", ["", "1.2.3.4", "1.2.3:5", "name:5", "1.2.3.4:x", "1.2.3.4:-1", "1.2.3.4:2147483648"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ConfigError) as raised:
        packed_host(host)
    assert raised.value.fix


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
    """Not where records have to be read to be dispatched, and not for who does not write them at once."""
    body = pa.array([b"x" * (1 << 20)] * rows)
    batch = pa.record_batch({"topic": ["T"] * rows, "body": body, "sysFlag": pa.array([sys_flag] * rows, pa.int32())})
    for asked in (True, False):
        frames = [piece.records.lay() for piece in encode_batch(batch, CONFIG, bodies_apart=asked)]
        assert [each.bodies is not None for each in frames] == [apart and asked] * len(frames)
        written = b"".join(bytes(contiguous(each.to_write())) for each in frames)
        assert written.count(b"x" * (1 << 20)) == rows
