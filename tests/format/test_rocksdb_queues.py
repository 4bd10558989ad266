import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import QueueKey
from segmentlog.store.errors import FormatError
from segmentlog.store.format.rocksdb_queues import (
    Bound,
    EntryKey,
    decode_values,
    entry_key,
    max_key,
    parse_bound,
    parse_entry_key,
    parse_max_key,
    queue_prefix,
)

A_QUEUE = QueueKey("größe", 3)
QUEUES = st.builds(
    QueueKey, st.text(min_size=1, max_size=40).filter(lambda t: t.isprintable()), st.integers(0, 1 << 30)
)
OFFSETS = st.integers(0, (1 << 63) - 2)


def test_a_key_of_rocketmq() -> None:
    key = bytes.fromhex("00000006") + b"\1RocksA\1" + bytes(4) + b"\1" + (2).to_bytes(8)
    assert entry_key(QueueKey("RocksA", 0), 2) == key
    assert parse_entry_key(key) == EntryKey(QueueKey("RocksA", 0), 2)
    last = bytes.fromhex("00000006") + b"\1RocksA\1max\1" + (1).to_bytes(4)
    assert max_key(QueueKey("RocksA", 1)) == last
    assert parse_max_key(last) == QueueKey("RocksA", 1)
    assert parse_max_key(last.replace(b"max", b"min")) is None


@given(QUEUES, OFFSETS, OFFSETS)
def test_keys_are_in_the_order_of_offsets(queue: QueueKey, one: int, other: int) -> None:
    keys = entry_key(queue, one), entry_key(queue, other)
    assert (keys[0] < keys[1]) == (one < other)
    assert parse_entry_key(keys[0]) == (queue, one)
    assert queue_prefix(queue) < keys[0] < entry_key(queue, (1 << 63) - 1) < queue_prefix(queue) + b"\xff"
    assert parse_max_key(max_key(queue)) == queue


@given(st.binary(max_size=60))
def test_no_key_is_an_error(key: bytes) -> None:
    entry, last = parse_entry_key(key), parse_max_key(key)
    assert entry is None or entry_key(*entry) == key
    assert last is None or max_key(last) == key


@pytest.mark.parametrize("change", [b"\xff", b"\x80"])
def test_negative_numbers_are_in_no_key(change: bytes) -> None:
    key = bytearray(entry_key(A_QUEUE, 5))
    key[-8:-7] = change
    assert parse_entry_key(bytes(key)) is None


def test_values_are_entries() -> None:
    entries = decode_values([struct.pack(">qiqq", 100, 50, -7, 1234), struct.pack(">qiqq", 150, 60, 8, 1235)])
    assert entries.tolist() == [(100, 50, -7), (150, 60, 8)]
    with pytest.raises(FormatError, match="27 bytes"):
        decode_values([bytes(27)])


def test_bounds_and_the_checkpoint_have_two_lengths() -> None:
    assert parse_bound(struct.pack(">qq", 100, 7)) == Bound(100, 7)
    assert parse_bound(struct.pack(">q", 100)) == Bound(100, -1)
    with pytest.raises(FormatError, match="which has 16"):
        parse_bound(bytes(9))
