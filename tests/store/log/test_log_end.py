"""End of a log: a failed check of RocketMQ cuts it, other doubts are reported and kept.

One test for each rule of docs/reliability.md, *End of a log*.

End of the records of a log: equal to the last whole record, whatever is before, after and between.
"""

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import DamagedLogError, MessageStore, OnDamage, Outgoing, QueueKey, Snapshot, StoreConfig
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format import durable_point
from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.message import blank_record
from segmentlog.store.format.naming import segment_name
from segmentlog.store.format.walk import walk
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.log.log_end import KnownEnd, LogState, examine_log
from support.batches import batch_of
from support.indexed_stores import Row, build
from support.live_copy import copy_live
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import contents, overwrite, put_at

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
    return len(Snapshot.open(path).bounds(KEY))


@pytest.mark.scaled(quick=4)
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
def test_a_record_that_fails_rocketmqs_checks_ends_a_brokers_log(tmp_path: Path, at: int, byte: bytes) -> None:
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


SEGMENT = 1 << 20


class CountingFs(LocalFileSystem):
    """Counts reads, and runs something between them."""

    def __init__(self) -> None:
        self.reads = self.ends = 0
        self.between: Callable[[], object] = lambda: None

    def read(self, path: str, offset: int, count: int) -> bytes:
        self.reads += 1
        found = super().read(path, offset, count)
        self.between()
        return found

    def data_end(self, path: str) -> int:
        self.ends += 1
        return super().data_end(path)


class Log:
    def __init__(self, path: Path, rows: list[Row]) -> None:
        build(path, rows, segment_bytes=SEGMENT)
        self.files = sorted((path / "commitlog").iterdir())
        for file in self.files:  # real zeros, no holes
            content = file.read_bytes()
            file.write_bytes(content + bytes(SEGMENT - len(content)))
        self.fs = CountingFs()
        self.log = CommitLog(self.fs, [str(path / "commitlog")])
        self.end = KnownEnd(self.fs, self.log)

    def list_again(self) -> None:
        self.log = self.log.again()
        self.end = self.end.newer(self.log)

    def last_record(self) -> int:
        """End of the last whole record, by reading the log from its first byte."""
        end = 0
        for segment in CommitLog(LocalFileSystem(), self.log.directories).segments:
            walked = walk(np.fromfile(segment.path, np.uint8), segment.base, 0, segment.size)
            if len(walked.records):
                end = segment.base + walked.end
        return end

    def take_from(self, start: int) -> bytes:
        """Cut off all bytes of the last file from a physical offset on, as if they had not been written yet."""
        file = self.files[-1]
        at = start - int(file.name)
        content = file.read_bytes()
        put_at(file, at, bytes(len(content) - at))
        return content[at:].rstrip(b"\0")


def rows(count: int, **kinds: Any) -> list[Row]:
    return [Row("T", f"k-{number}", f"u-{number}", **kinds) for number in range(count)]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Log]:
    return lambda some: Log(tmp_path / "store", some)


def starts(log: Log) -> list[int]:
    return [
        found.segment.base + position
        for found in log.log.walk(0, log.log.stop)
        for position in found.records.positions.tolist()
    ]


@pytest.mark.parametrize(
    "some",
    [
        rows(1),
        rows(30),
        rows(5_000),
        rows(12_000),
        rows(7, body_bytes=100_000),
        rows(9, body_bytes=200_000),
        [*rows(3), *rows(1, body_bytes=900_000)],
        [*rows(1, body_bytes=900_000), *rows(3)],
    ],
    ids=["one", "few", "many", "two files", "zero bodies", "blanks", "large last", "large first"],
)
def test_the_end_is_that_of_the_last_record(make: Callable[..., Log], some: list[Row]) -> None:
    log = make(some)
    assert log.end.now() == log.last_record()
    assert log.fs.ends == 0
    log.fs.reads = 0
    assert log.end.now() == log.last_record()
    assert log.fs.reads == 1


@pytest.mark.parametrize("count", [0, 1, 100, 12_000])
def test_a_place_near_the_end_is_at_most_a_page_after_it(make: Callable[..., Log], count: int) -> None:
    log = make(rows(count))
    assert 0 <= log.end.nearby() - log.end.now() <= 4096


def test_segments_made_ahead_are_empty(make: Callable[..., Log]) -> None:
    log = make(rows(100))
    for ahead in (1, 2):
        (log.files[0].parent / f"{ahead * SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    log.list_again()
    assert log.end.now() == log.last_record() < SEGMENT
    assert log.end.now() == log.last_record()
    assert log.fs.ends == 0


def test_the_first_record_of_a_segment_made_ahead_moves_the_end(make: Callable[..., Log]) -> None:
    log = make(rows(12_000))
    first = next(place for place in starts(log) if place >= SEGMENT)
    content = log.take_from(first)
    assert log.end.now() == SEGMENT
    put_at(log.files[-1], 0, content)
    assert log.end.now() == log.last_record()


def test_a_record_that_is_half_written_is_not_there_yet(make: Callable[..., Log]) -> None:
    log = make(rows(50))
    places = starts(log)
    content = log.take_from(places[-1])
    assert log.end.now() == places[-1]
    put_at(log.files[-1], places[-1], content[:40])
    assert log.end.now() == places[-1]
    put_at(log.files[-1], places[-1], content)
    assert log.end.now() == log.last_record()
    assert log.fs.ends == 0


def test_a_writer_in_between_hides_nothing_that_was_there(make: Callable[..., Log]) -> None:
    log = make(rows(4_000))
    places = starts(log)
    content = log.take_from(places[100])
    written = [100]

    def append() -> None:
        upto = min(written[0] + 7, len(places) - 1)
        put_at(
            log.files[-1], places[written[0]], content[places[written[0]] - places[100] : places[upto] - places[100]]
        )
        written[0] = upto

    log.fs.between = append
    while written[0] < len(places) - 1:
        before = places[written[0]]
        assert before <= log.end.now() <= places[written[0]]
    assert log.fs.ends == 0


def test_a_truncated_log_is_searched_again(make: Callable[..., Log]) -> None:
    log = make(rows(500))
    places = starts(log)
    assert log.end.now() == log.last_record()
    log.take_from(places[200])
    assert log.end.now() == places[200]


def test_a_replaced_log_is_searched_again(make: Callable[..., Log], tmp_path: Path) -> None:
    log = make(rows(500))
    assert log.end.now() == log.last_record()
    other = Log(tmp_path / "other", [*rows(500), *rows(3)])
    shutil.move(other.files[0], log.files[0])
    log.list_again()
    assert log.end.now() == log.last_record()


@pytest.mark.parametrize("lost", [(100, 200), (100, 1200), (1, 1990), (1900, 1999)])
def test_records_after_a_lost_stretch_are_before_the_end(make: Callable[..., Log], lost: tuple[int, int]) -> None:
    log = make(rows(2_000))
    places = starts(log)
    put_at(log.files[0], places[lost[0]], bytes(places[lost[1]] - places[lost[0]]))
    assert log.end.now() >= log.last_record()


def test_damage_of_the_last_records_hides_none_before_it(make: Callable[..., Log]) -> None:
    log = make(rows(2_000))
    places = starts(log)
    put_at(log.files[0], places[1990], b"\xff" * (places[1999] - places[1990]))
    assert log.end.now() >= log.last_record()
    put_at(log.files[0], places[1999], b"\xff" * 40)
    assert log.end.now() >= places[1990]


@pytest.mark.parametrize("content", [b"", blank_record(SEGMENT)])
def test_a_log_without_records_has_no_end_but_its_start(make: Callable[..., Log], content: bytes) -> None:
    log = make(rows(1))
    log.files[0].write_bytes(content + bytes(SEGMENT - len(content)))
    assert log.end.now() == (SEGMENT if content else 0)


def test_a_segment_that_was_deleted_meanwhile_ends_nothing(make: Callable[..., Log]) -> None:
    log = make(rows(12_000))
    assert log.end.now() == log.last_record()
    log.files[-1].unlink()
    assert log.end.now() == SEGMENT
