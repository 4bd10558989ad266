"""`RecordExtents`: places and sizes of messages, from ConsumeQueues, from the log, and from both after a crash."""

from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import QueueKey, QueueRange, QueueSource, ScanSpec, StoreReader
from segmentlog.store.read import extents as module
from support import reading
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import QueueFiles

KEY = QueueKey("Orders", 1)
COUNT = 120
COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "storeSize")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s", geometry=Geometry(segment_bytes=4096, queue_segment_entries=10)) as builder:
        builder.append(messages(COUNT))
    return tmp_path / "s"


def after_a_crash(store: Path) -> StoreReader:
    """A reader of the store as a crash may leave it: the last entries of the queue are missing."""
    QueueFiles(store, KEY.topic, KEY.queue_id).zero(22, 30)
    (store / "abort").touch()
    return StoreReader.open(store)


def scanned(reader: StoreReader) -> list[tuple[int, int, int]]:
    rows = reading.read(reader, columns=COLUMNS, check_crc=False)
    mine = (row for row in rows if QueueKey(row["topic"], row["queueId"]) == KEY)
    return [(row["queueOffset"], row["physicalOffset"], row["storeSize"]) for row in mine]


@pytest.mark.parametrize("how", ["queue", "log", "crash"])
def test_places_and_sizes_are_those_of_a_scan(store: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = QueueSource.COMMIT_LOG if how == "log" else QueueSource.AUTO
    reader = after_a_crash(store) if how == "crash" else StoreReader.open(store, queue_source=source)
    assert reader.goes_by_queues is (how == "queue")
    rows = scanned(reader)
    assert [row[0] for row in rows] == list(range(COUNT // 4))
    assert [reader.place_of(KEY, row[0]) for row in rows] == [row[1] for row in rows]
    assert reader.place_of(KEY, COUNT) is None
    for step in (1, 4):
        expected = [*(row[1] for row in rows[::step]), -1]
        assert reader.places_at(KEY, np.array([*range(0, len(rows), step), COUNT])).tolist() == expected
    wanted = QueueRange(KEY, 3, 27)
    assert reader.record_sizes(wanted).tolist() == [row[2] for row in rows[3:27]]
    for block in (1, 7, 1 << 20):
        monkeypatch.setattr(module, "_BLOCK_ROWS", block)
        assert reader.stored_bytes(wanted) == sum(row[2] for row in rows[3:27])
    assert reader.stored_bytes(QueueRange(KEY, 3, 3)) == 0


def test_a_damaged_entry_has_no_place_and_no_size(store: Path) -> None:
    QueueFiles(store, KEY.topic, KEY.queue_id).zero(5, 6)
    reader = StoreReader.open(store)
    assert reader.place_of(KEY, 5) is None
    assert (reader.places_at(KEY, np.arange(10)) < 0).tolist() == [offset == 5 for offset in range(10)]
    assert np.flatnonzero(reader.record_sizes(QueueRange(KEY, 0, 10)) == 0).tolist() == [5]


@pytest.mark.parametrize("how", ["log", "crash"])
def test_a_task_walks_no_more_of_the_log_than_its_ranges_need(store: Path, how: str) -> None:
    reader = after_a_crash(store) if how == "crash" else StoreReader.open(store, queue_source=QueueSource.COMMIT_LOG)
    rows = scanned(reader)
    for start, stop in ((0, 30), (23, 25), (10, 24), (29, 30)):
        (task,) = reader.plan([QueueRange(KEY, start, stop)], max_bytes=1 << 30)
        walks = [piece.walk for piece in task.ranges if piece.walk is not None]
        first = next(piece.start for piece in task.ranges if piece.walk is not None) if walks else stop
        for low, high in walks:
            assert low >= (rows[first - 1][1] + rows[first - 1][2] if first else 0)
            assert high <= (rows[stop][1] if stop < len(rows) else rows[-1][1] + rows[-1][2])
        found = [n for b in reader.scan(task, ScanSpec(columns=("queueOffset",))) for n in b.column(0).to_pylist()]
        assert found == list(range(start, stop))
