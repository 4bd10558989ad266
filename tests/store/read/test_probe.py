"""Sizes and identities of messages, against a scan of the same messages."""

from pathlib import Path

import pytest

from segmentlog.store import MessageStore, QueueKey, QueueRange, QueueSource, ScanSpec, StoreReader
from segmentlog.store.follow import message_identity
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
            assert reader.record_sizes(wanted).tolist() == [row["storeSize"] for row in rows]
            for row in rows[:: max(1, len(rows) // 5)]:
                found = message_identity(reader, bounds.key, row["queueOffset"])
                assert found == (row["physicalOffset"], reading.millis(row["storeTimestamp"]))
                checked += 1
    assert checked > 10


def test_a_message_whose_record_is_gone_has_no_identity(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", writing.SMALL) as store:
        for message in writing.plain(300):
            store.append(message)
    key = QueueKey("Plain", 0)
    reader = StoreReader.open(tmp_path / "store")
    assert message_identity(reader, key, 0) is not None
    first, *_ = sorted((tmp_path / "store" / "commitlog").iterdir())
    first.unlink()
    again = StoreReader.open(tmp_path / "store")
    assert message_identity(again, key, 0) is None
    assert message_identity(again, key, 1 << 40) is None
