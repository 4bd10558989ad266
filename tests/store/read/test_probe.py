"""Sizes and marks, against what a scan of the same messages says."""

from pathlib import Path

import pytest

from segmentlog.store import MessageStore, QueueKey, QueueRange, QueueSource, ScanSpec, StoreReader
from segmentlog.store.follow import mark_of, record_sizes
from support import fixtures, reading, writing

COLUMNS = ("queueId", "queueOffset", "physicalOffset", "storeTimestamp", "storeSize")


@pytest.mark.parametrize("source", list(QueueSource))
@pytest.mark.parametrize("name", ["basic-5.3.3", "retention-5.3.3"])
def test_every_message(name: str, source: QueueSource, tmp_path: Path) -> None:
    reader = StoreReader.open(fixtures.unpack(name, tmp_path), queue_source=source)
    checked = 0
    for topic in reader.topics():
        for bounds in reader.queues(topic):
            wanted = QueueRange(bounds.key, bounds.min_offset, bounds.max_offset)
            rows = [
                row
                for task in reader.plan([wanted], max_bytes=1 << 40)
                for batch in reader.scan(task, ScanSpec(columns=COLUMNS))
                for row in batch.to_pylist()
            ]
            assert record_sizes(reader, wanted).tolist() == [row["storeSize"] for row in rows]
            for row in rows[:: max(1, len(rows) // 5)]:
                mark = mark_of(reader, bounds.key, row["queueOffset"])
                assert mark == (row["physicalOffset"], reading.millis(row["storeTimestamp"]))
                checked += 1
    assert checked > 10


def test_a_message_whose_record_is_gone_has_no_mark(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", writing.SMALL) as store:
        for message in writing.plain(300):
            store.append(message)
    key = QueueKey("Plain", 0)
    reader = StoreReader.open(tmp_path / "store")
    assert mark_of(reader, key, 0) is not None
    first, *_ = sorted((tmp_path / "store" / "commitlog").iterdir())
    first.unlink()
    again = StoreReader.open(tmp_path / "store")
    assert mark_of(again, key, 0) is None
    assert mark_of(again, key, 1 << 40) is None
