"""End of a log: a failed check of RocketMQ cuts it, other doubts are reported and kept.

One test for each rule of docs/reliability.md, *End of a log*.
"""

import logging
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from segmentlog.store import DamagedLogError, MessageStore, OnDamage, Outgoing, QueueKey, StoreConfig, StoreReader
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format import durable_point
from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.naming import segment_name
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.log.log_end import LogState, examine_log
from support.batches import batch_of
from support.live_copy import copy_live
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import contents, overwrite

CONFIG = replace(StoreConfig(), segment_bytes=8192, queue_segment_entries=50, index=False)
GEOMETRY = Geometry(segment_bytes=8192, queue_segment_entries=50)
STALE = b"origin\x01elsewhere\x02__CRC32#\x018195093202\x02"
"""Properties that a client took over from another message, with the checksum of that one."""
KEY = QueueKey("Orders", 0)
MESSAGES = 30


def brokers(path: Path, stale_at: int, others: RecordCrc = RecordCrc.ABSENT) -> int:
    """A store that a broker closed; returns the physical offset of the one message that has a stale checksum."""
    rows = messages(MESSAGES, queues=1)
    plain = {name: rows[name] for name in ("topic", "queueId", "body", "storeTimestamp")}
    forwarded = pa.record_batch(plain | {"propertyBytes": pa.array([STALE] * MESSAGES)})
    starts = []
    with StoreBuilder(path, geometry=GEOMETRY) as builder:
        for row in range(MESSAGES):
            builder.record_crc = others if row != stale_at else RecordCrc.ABSENT
            placed = builder.append((rows if row != stale_at else forwarded).slice(row, 1))
            starts.append(int(placed.physical_offsets[0]))
    return starts[stale_at]


def count_read(path: Path) -> int:
    return len(StoreReader.open(path).bounds(KEY))


@pytest.mark.parametrize("is_halted", [False, True], ids=["closed", "halted"])
@pytest.mark.parametrize("others", [RecordCrc.ABSENT, RecordCrc.PROPERTY], ids=["without", "with checksums"])
@pytest.mark.parametrize("stale_at", [0, 14, MESSAGES - 1])
def test_a_stale_checksum_of_a_client_cuts_nothing(
    tmp_path: Path, stale_at: int, others: RecordCrc, is_halted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "s"
    start = brokers(store, stale_at, others)
    if is_halted:
        (store / "abort").touch()
    assert count_read(store) == MESSAGES
    with caplog.at_level(logging.WARNING), MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered.cut_bytes == 0
        assert opened.recovered.corrected == 0
    assert count_read(store) == MESSAGES
    assert f"the first at physical offset {start}" in caplog.text
    assert "elsewhere" not in caplog.text


@pytest.mark.parametrize(
    ("at", "byte"),
    [(3, b"\xff"), (4, b"\0"), (28, b"\x01"), (90, b"\xff")],
    ids=["size", "magic", "physical offset", "body"],
)
def test_what_rocketmq_checks_ends_a_brokers_log(tmp_path: Path, at: int, byte: bytes) -> None:
    store = tmp_path / "s"
    start = brokers(store, MESSAGES - 1)
    overwrite(store, start + at, byte)
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.end_offset == start


def ours(tmp_path: Path, forwarded: bool = False) -> tuple[Path, int, int]:
    """A store of ours as ``kill -9`` leaves it, and where its last record begins and ends."""
    stale = {"origin": "elsewhere", "__CRC32#": "8195093202"} if forwarded else {}
    message = Outgoing(topic="Orders", body=b"body" * 10, queue_id=0, properties=stale)
    with MessageStore.open(tmp_path / "live", CONFIG) as store:
        for _ in range(9):
            store.append(message)
        store.append_batch(batch_of([message] * 9))
        last = store.append(message)
        store.wait_dispatched()
        copy_live(tmp_path / "live", tmp_path / "crashed")
    return tmp_path / "crashed", last.physical_offset, last.physical_offset + last.size


def forget_durable_log(store: Path, end: int) -> None:
    """As if the durable point had been written before the last record was synced."""
    path = store / ".segmentlog" / "durable"
    point = durable_point.decode(path.read_bytes())
    assert point is not None
    older = durable_point.encode(replace(point, log=end))
    path.write_bytes(older.ljust(durable_point.FILE_BYTES, b"\0"))


@pytest.mark.parametrize("lost", [20, 1, 40])
def test_where_ours_put_all_records_one_without_its_checksum_is_torn(tmp_path: Path, lost: int) -> None:
    """Its body is whole: by what RocketMQ checks it would stay, with properties of zeros."""
    store, start, end = ours(tmp_path)
    forget_durable_log(store, start)
    overwrite(store, end - lost, bytes(lost))
    assert count_read(store) == 18
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.end_offset == start
    assert count_read(store) == 18


def test_a_segment_made_ahead_does_not_move_the_last_record(tmp_path: Path) -> None:
    brokers(tmp_path, stale_at=0)
    directory = tmp_path / "commitlog"

    def state() -> LogState:
        return examine_log(CommitLog(LocalFileSystem(), [str(directory)]), 0)

    whole = state()
    newest = max(directory.iterdir())
    (directory / segment_name(int(newest.name) + 8192)).write_bytes(bytes(8192))
    data = bytearray(newest.read_bytes())
    data[4:8] = b"\xff" * 4  # the magic of its first record
    newest.write_bytes(data)
    damaged = state()
    assert damaged.beyond > 0
    assert damaged.last == whole.end


def test_below_the_durable_point_it_is_damage_and_not_torn(tmp_path: Path) -> None:
    store, start, end = ours(tmp_path)
    overwrite(store, end - 20, bytes(20))
    with pytest.raises(DamagedLogError) as refused:
        MessageStore.open(store, CONFIG)
    assert refused.value.offset == start
    assert count_read(store) == 19
    with MessageStore.open(store, CONFIG, on_damage=OnDamage.CUT) as opened:
        assert opened.end_offset == start


def test_in_a_store_that_was_closed_nothing_is_torn(tmp_path: Path) -> None:
    store, _, end = ours(tmp_path)
    with MessageStore.open(store, CONFIG):
        pass
    overwrite(store, end - 20, bytes(20))
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered.cut_bytes == 0
        assert opened.end_offset == end


def test_where_a_broker_was_in_between_only_its_rules_count(tmp_path: Path) -> None:
    store, _, end = ours(tmp_path)
    forget_durable_log(store, 0)
    (store / "lock").write_bytes(b"")  # brokers write it again
    overwrite(store, end - 20, bytes(20))
    assert count_read(store) == 19
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.end_offset == end


def test_a_checksum_that_is_forwarded_to_our_writer_is_replaced(tmp_path: Path) -> None:
    store, start, end = ours(tmp_path, forwarded=True)
    forget_durable_log(store, 0)
    last = contents(store, start, end - start)
    assert last.count(b"__CRC32#") == 1
    assert b"8195093202" not in last
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.end_offset == end
    assert count_read(store) == 19
