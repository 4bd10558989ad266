import shutil
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import QueueKey
from segmentlog.store.directory.layout import rocksdb_queues
from segmentlog.store.entries.rocksdb_tables import RocksBounds, RocksPart, RocksQueues
from segmentlog.store.files.fs import LocalFileSystem
from support import fixtures

pytest.importorskip("rocksdict")
pytestmark = pytest.mark.conformance

FS = LocalFileSystem()
WHOLE = ["queues-rocksdb-5.3.3", "queues-rocksdb-5.5.0", "queues-both-5.5.0", "queues-both-apart-5.5.0"]
ALL = [*WHOLE, "lite-rocksdb-5.5.0", "queues-moved-5.5.0", "queues-rocksdb-crash-5.5.0"]


def opened(store: Path) -> RocksQueues:
    directory = rocksdb_queues(FS, str(store))
    assert directory is not None
    return RocksQueues.open(FS, directory)


def expected(name: str) -> dict[tuple[QueueKey, int], tuple[int, int, int]]:
    return {
        (QueueKey(m["topic"], m["queueId"]), m["queueOffset"]): (
            m["cqPhyOffset"],
            m["cqSize"],
            m["cqTagsCode"],
        )
        for m in fixtures.expected(name).messages
        if not m["topic"].startswith("%LMQ%")
    }


def entries_of(queues: RocksQueues, chunk: int = 1000) -> dict[tuple[QueueKey, int], tuple[int, int, int]]:
    found = {}
    for key in queues.queues():
        bounds = queues.bounds(key)
        assert bounds is not None
        for part in queues.entries(key, 0, bounds.stop, chunk):
            found |= {(key, offset): entry for offset, entry in enumerate(part.entries.tolist(), part.start)}
    return found


@pytest.mark.scaled(quick=4)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("chunk", [7, 65536])
def test_entries_equal_the_entries_that_rocketmq_reads(name: str, chunk: int, tmp_path: Path) -> None:
    with opened(fixtures.unpack(name, tmp_path)) as queues:
        found = {item: entry for item, entry in entries_of(queues, chunk).items() if item[0].topic[0] != "%"}
        dispatched = queues.dispatched_up_to()
    asked = expected(name)
    assert dispatched is not None
    if name in WHOLE or name.startswith("lite"):
        assert found == asked
    else:
        assert found
        assert {item: entry for item, entry in asked.items() if item in found} == {
            item: entry for item, entry in found.items() if item in asked
        }
        # Later entries are not in the database; and RocketMQ reads none before its minimum offset.
        assert all(entry[0] >= dispatched for item, entry in asked.items() if item not in found)


def test_a_part_of_a_queue_is_read_and_an_unknown_queue_has_none(tmp_path: Path) -> None:
    with opened(fixtures.unpack("queues-rocksdb-5.5.0", tmp_path)) as queues:
        key = queues.queues()[0]
        (whole,) = queues.entries(key, 0, 1 << 62)
        (some,) = queues.entries(key, 5, 9)
        assert some.start == 5
        np.testing.assert_array_equal(some.entries, whole.entries[5:9])
        assert queues.bounds(QueueKey("nothing", 0)) is None
        assert list(queues.entries(QueueKey("nothing", 0), 0, 10)) == []
        assert list(queues.entries(key, 1 << 62, (1 << 63) - 1)) == []


def write(directory: Path, items: dict[bytes, bytes], families: tuple[str, ...] = ("offset",)) -> None:
    import rocksdict  # noqa: PLC0415

    made = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True))
    for family in families:
        made.create_column_family(family, rocksdict.Options(raw_mode=True))
    for key, value in items.items():
        made[key] = value
    made.flush()
    made.close()


def item(offset: int, topic: bytes = b"T") -> tuple[bytes, bytes]:
    key = len(topic).to_bytes(4) + b"\1" + topic + b"\1" + bytes(4) + b"\1" + offset.to_bytes(8)
    return key, (offset * 100).to_bytes(8) + (100).to_bytes(4) + (7).to_bytes(8) + (1234).to_bytes(8)


@pytest.mark.parametrize("families", [(), ("offset",)])
def test_missing_entries_end_a_part(families: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, dict([item(2), item(3), item(6), item(1 << 40), item(1, b"other"), (b"strange", b"")]), families)
    with RocksQueues.open(FS, str(tmp_path)) as queues:
        assert queues.queues() == [QueueKey("T", 0), QueueKey("other", 0)]
        assert queues.bounds(QueueKey("T", 0)) == RocksBounds(2, (1 << 40) + 1, 100 << 40)
        parts = list(queues.entries(QueueKey("T", 0), 0, 100))
        assert [(part.start, part.entries.size) for part in parts] == [(2, 2), (6, 1)]
        assert parts[1].entries.tolist() == [(600, 100, 7)]
        assert queues.dispatched_up_to() is None
        assert isinstance(parts[0], RocksPart)


def test_the_database_apart_counts_before_the_one_beside_the_queues(tmp_path: Path) -> None:
    store = fixtures.unpack("queues-both-5.5.0", tmp_path)
    assert rocksdb_queues(FS, str(store)) == str(store / "consumequeue")
    shutil.copytree(store / "consumequeue", store / "consumequeue_rocksdb")
    assert rocksdb_queues(FS, str(store)) == str(store / "consumequeue_rocksdb")
    assert rocksdb_queues(FS, str(fixtures.unpack("basic-5.5.0", tmp_path / "files"))) is None
