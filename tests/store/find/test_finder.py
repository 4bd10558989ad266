from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import BatchId, MessageStore, Outgoing, QueueKey, ScanSpec, Snapshot, StoreConfig
from segmentlog.store.errors import ConfigError
from segmentlog.store.find import ASKED, Finder, Found, KeyField, Order, Source, Window
from segmentlog.store.find.finder import places_in_queue, whole
from segmentlog.store.format.index_file import Geometry
from support.batches import stage_messages
from support.indexed_stores import START_MS, Row, build, every_record, write_index
from support.parted_store import PartedStore
from support.store_builder import Queues
from support.tampering import QueueFiles, overwrite
from support.written_stores import SMALL

KEY = QueueKey("T", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = [Row("T", f"key-{i}", f"U{i:031X}", START_MS + 10 * i, queue_id=i % 2) for i in range(200)]
    build(tmp_path / "store", rows)
    write_index(tmp_path / "store", Geometry(31, 300))
    return tmp_path / "store"


@pytest.fixture
def finder(path: Path) -> Finder:
    return Finder(Snapshot.open(path))


def keys(found: Found) -> list[str]:
    names: list[str] = found.to_table(ScanSpec(columns=("keys",)))["keys"].to_pylist()
    return names


def asked(found: Found) -> list[object]:
    values: list[object] = found.to_table(ScanSpec(columns=()))[ASKED].to_pylist()
    return values


def test_by_key_unique_key_pairs_and_time(finder: Finder) -> None:
    unique = f"U{9:031X}"
    assert keys(finder.by_keys(["T"], ["key-7", "key-5"])) == ["key-5", "key-7"]
    assert keys(finder.by_keys(["T"], [unique], KeyField.UNIQUE)) == ["key-9"]
    assert keys(finder.by_keys(["T"], [unique, "key-7"], KeyField.EITHER)) == ["key-7", "key-9"]
    assert keys(finder.by_keys(["T"], [unique])) == []
    window, wanted = Window(START_MS + 50, START_MS + 80), [f"key-{i}" for i in range(200)]
    for order, step in ((Order.OLDEST_FIRST, 1), (Order.NEWEST_FIRST, -1)):
        found = finder.by_keys(["T"], wanted, window=window, order=order)
        assert keys(found) == ["key-5", "key-6", "key-7"][::step]
    found = finder.by_pairs(pa.array(["T", "S", "T"]), pa.array(["key-1", "key-2", "key-3"]))
    assert keys(found) == ["key-1", "key-3"]
    assert found.missing().to_pylist() == [{"topic": "S", "key": "key-2"}]


def test_by_message_id_in_either_case(finder: Finder, path: Path) -> None:
    records = every_record(path)
    ids = [f"7F00000100002A9F{record.physical_offset:016X}" for record in records]
    found = finder.by_message_ids([ids[5], ids[9].lower(), ids[5], "7F00000200002A9F0000000000000000"])
    assert keys(found) == ["key-5", "key-9"]
    assert asked(found) == [ids[5], ids[9]]
    assert found.coverage is None
    with pytest.raises(ConfigError, match=rf"^\[\w+\] message_id: '{ids[5][:-1].lower()}' is not a message id"):
        finder.by_message_ids([ids[5], ids[5][:-1].lower()])


def test_by_physical_offset(finder: Finder, path: Path) -> None:
    places = [record.physical_offset for record in every_record(path)]
    found = finder.by_physical_offsets([places[9], places[3], places[3] + 1, 1 << 40])
    assert keys(found) == ["key-3", "key-9"]
    assert asked(found) == [places[3], places[9]]
    assert found.missing()["physicalOffset"].to_pylist() == [places[3] + 1, 1 << 40]


def test_by_queue_offset(finder: Finder) -> None:
    found = finder.by_queue_offsets(KEY, np.array([0, 3, 99, 100]))
    assert keys(found) == ["key-1", "key-7", "key-199"]
    assert asked(found) == [0, 3, 99]
    assert found.missing()["queueOffset"].to_pylist() == [100]


def test_messages_of_an_open_writer_are_found_after_refresh(tmp_path: Path) -> None:
    config = StoreConfig(segment_bytes=1 << 16, index_slots=31, index_entries=50)
    with MessageStore.open(tmp_path / "s", config) as store:
        store.append(Outgoing(topic="T", body=b"a", keys="first"))
        finder = Finder(Snapshot.open(tmp_path / "s"))
        assert len(finder.by_keys(["T"], ["first", "second"])) == 1
        store.append(Outgoing(topic="T", body=b"b", keys="second"))
        finder = finder.newer()
        assert len(finder.by_keys(["T"], ["first", "second"])) == 2
    finder = finder.newer()
    found = finder.by_keys(["T"], ["first", "second"])
    assert len(found) == 2
    assert found.coverage is not None
    assert {each.source for each in found.coverage.ranges} <= set(Source)


def test_a_file_of_0_bytes_that_becomes_a_segment_is_a_change(path: Path) -> None:
    last = max((path / "commitlog").iterdir())
    written = last.read_bytes()
    last.write_bytes(b"")
    finder = Finder(Snapshot.open(path))
    before = finder.state()
    assert finder.state() == before
    with last.open("r+b") as file:  # its directory stays the same
        file.write(written)
    assert finder.newer(finder.store.newer(finder.store.look())).state().stop > before.stop


TWO_QUEUES = QueueKey("T", 0)


def a_store(path: Path, queues: Queues = Queues.WRITTEN) -> list[int]:
    build(path, [Row("T", f"k{i}", queue_id=i % 2) for i in range(600)], segment_bytes=4096, queues=queues)
    return [record.physical_offset for record in every_record(path)][::2]


@pytest.mark.parametrize("entry", [(0, 0, 0), (-1, -1, -1), (0, 10, 0), (1 << 50, 200, 0)])
def test_a_damaged_entry_is_healed_by_the_log(entry: tuple[int, int, int], tmp_path: Path) -> None:
    expected = a_store(tmp_path / "s")
    QueueFiles(tmp_path / "s", "T", 0).put(40, *entry)
    wanted = np.array([39, 40, 41])
    assert places_in_queue(Snapshot.open(tmp_path / "s"), TWO_QUEUES, wanted).tolist() == expected[39:42]


def test_only_whole_records_before_the_end_count(tmp_path: Path) -> None:
    expected = a_store(tmp_path / "s")
    overwrite(tmp_path / "s", expected[40] + 4, bytes(4))
    snapshot = Snapshot.open(tmp_path / "s")
    assert places_in_queue(snapshot, TWO_QUEUES, np.array([39, 40, 41])).tolist() == [expected[39], -1, expected[41]]
    log, places = (
        snapshot.log,
        (*expected[39:42], expected[7], expected[7] + 1, -5, snapshot.log.stop, 1 << 60, expected[3]),
    )
    for end, sound in ((log.stop, (0, 2, 3, 8)), (expected[7], (8,))):
        assert np.flatnonzero(whole(log, np.array(places), end)).tolist() == list(sound)


ORDER_KEY = "order-7"


def ask(path: Path, topic: str, key: str) -> list[int]:
    return Finder(Snapshot.open(path)).by_keys([topic], [key], KeyField.EITHER).physical_offset.tolist()


def test_a_batch_in_flight_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    message = Outgoing(topic="T", body=b"", keys=ORDER_KEY)
    with PartedStore.open(path, SMALL) as store:
        before = store.append(message).physical_offset
        staged = stage_messages(path, [message] * 3, SMALL)
        seen: list[list[int]] = []
        real = store.parts.publication.publish

        def publish(batch_id: BatchId, stop: int) -> None:
            store.parts.housekeeping.dispatch(at_once=True)
            seen.append(ask(path, "T", ORDER_KEY))
            real(batch_id, stop)

        monkeypatch.setattr(store.parts.publication, "publish", publish)
        committed = store.commit_batch(BatchId("q", 0), [staged])
        assert seen == [[before]]
        assert ask(path, "T", ORDER_KEY)[:2] == [before, committed.start]
        assert len(ask(path, "T", ORDER_KEY)) == 4
