import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from segmentlog.store import OnCorrupt, QueueKey, QueueSource, Snapshot
from segmentlog.store.entries import choose, rocksdb
from segmentlog.store.entries.rocksdb import DatabaseQueues
from segmentlog.store.entries.rocksdb_tables import RocksQueues
from segmentlog.store.entries.walked import LogQueues
from segmentlog.store.format.naming import LMQ_PREFIX
from segmentlog.store.format.rocksdb_queues import entry_key
from segmentlog.store.log.commit_log import CommitLog
from support import conformance, fixtures, reading

pytestmark = pytest.mark.conformance
IN_ROCKSDB = fixtures.in_rocksdb()


@pytest.fixture(autouse=True)
def _small_logs_are_worth_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "WORTH_BYTES", 1)


def check(name: str, store: Path, cache: Path | None = None) -> Snapshot:
    """Assert that rows and bounds are RocketMQ's, but for the known differences."""
    snapshot = Snapshot.open(store, queue_cache=cache)
    conformance.check_rows(name, list(reading.read(snapshot, on_corrupt=OnCorrupt.NULL)), QueueSource.AUTO)
    for queue in fixtures.expected(name).queues:
        bounds = snapshot.bounds(QueueKey(queue["topic"], queue["queueId"]))
        assert bounds.max_offset == queue["maxOffset"]
        assert bounds.min_offset == queue["minOffset"] or name in conformance.DIFFERENCES
    return snapshot


@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("name", IN_ROCKSDB)
def test_all_messages_are_read_without_the_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    snapshot = check(name, fixtures.unpack(name, tmp_path))
    assert isinstance(snapshot.entries, LogQueues)
    (said,) = [record.getMessage() for record in caplog.records if "rocksdict" in record.getMessage()]
    assert "pip install 'segmentlog[rocksdb]'" in said


@pytest.mark.scaled(quick=3)
@pytest.mark.parametrize("name", IN_ROCKSDB)
def test_kept_entries_of_a_database_equal_the_entries_of_the_log(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb, "_WORTH_ENTRIES", 1)
    store, cache = fixtures.unpack(name, tmp_path), tmp_path / "cache"
    first, kept = (check(name, store, cache).entries for _ in range(2))
    assert isinstance(first, DatabaseQueues)
    assert isinstance(kept, DatabaseQueues | LogQueues)
    is_light = any(queue["topic"].startswith(LMQ_PREFIX) for queue in fixtures.expected(name).queues)
    assert isinstance(kept, LogQueues) != is_light  # nothing tells that all of its entries are there
    derived = Snapshot.open(store, queue_source=QueueSource.COMMIT_LOG).entries
    assert isinstance(derived, LogQueues)
    for key in set(kept) & set(derived):
        assert all((mine == theirs).all() for mine, theirs in zip(kept[key], derived[key], strict=True))


def cut_tables(directory: Path) -> None:
    for table in directory.glob("*.sst"):
        table.write_bytes(table.read_bytes()[:-100])


def noise_in_tables(directory: Path) -> None:
    for table in directory.glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[: len(content) // 2] = b"\xa5" * (len(content) // 2)
        table.write_bytes(content)


def lost_tables(directory: Path) -> None:
    for table in directory.glob("*.sst"):
        table.unlink()


def lost_manifest(directory: Path) -> None:
    for manifest in directory.glob("MANIFEST-*"):
        manifest.unlink()


@pytest.mark.scaled(quick=4)
@pytest.mark.parametrize("damage", [cut_tables, noise_in_tables, lost_tables, lost_manifest])
@pytest.mark.parametrize("name", ["queues-rocksdb-5.5.0", "queues-both-5.5.0"])
def test_the_log_has_all_messages_if_the_database_is_damaged(
    name: str, damage: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = fixtures.unpack(name, tmp_path)
    damage(store / "consumequeue")
    check(name, store)
    assert "derived from the CommitLog" in caplog.text


def test_a_task_reads_its_entries_from_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "queues-rocksdb-5.5.0"
    store = fixtures.unpack(name, tmp_path)
    planner = Snapshot.open(store)
    tasks = planner.plan(reading.whole_queues(planner), max_bytes=1 << 30)
    worker = Snapshot.open(store)
    monkeypatch.setattr(CommitLog, "walks", lambda *_: pytest.fail("the log is walked"))
    spec = reading.ScanSpec(columns=("topic", "queueOffset", "body"))
    rows = sum(batch.num_rows for task in tasks for batch in worker.scan(task, spec))
    assert rows == len(fixtures.expected(name).messages)


def test_queues_begin_with_the_log(tmp_path: Path) -> None:
    store = fixtures.unpack("queues-rocksdb-crash-5.5.0", tmp_path)
    (store / "commitlog" / f"{0:020d}").unlink()
    found = Snapshot.open(store)
    expected = Snapshot.open(store, queue_source=QueueSource.COMMIT_LOG)
    assert [found.queues(topic) for topic in found.topics()] == [expected.queues(topic) for topic in expected.topics()]
    shutil.rmtree(store / "consumequeue")
    alone = Snapshot.open(store)
    assert [found.queues(topic) for topic in found.topics()] == [alone.queues(topic) for topic in alone.topics()]


def test_entries_that_the_database_lacks_are_taken_from_the_log(tmp_path: Path) -> None:
    import rocksdict  # noqa: PLC0415

    name = "queues-rocksdb-5.5.0"
    store = fixtures.unpack(name, tmp_path)
    options = rocksdict.Options(raw_mode=True)
    directory = str(store / "consumequeue")
    families = dict.fromkeys(rocksdict.Rdict.list_cf(directory, options), options)
    database = rocksdict.Rdict(directory, options, families)
    lost = [queue for queue in fixtures.expected(name).queues if queue["maxOffset"] > 20][:3]
    for place, queue in zip((0, 5, 6), lost, strict=True):
        del database[entry_key(QueueKey(queue["topic"], queue["queueId"]), place)]
    database.flush()
    database.close()
    check(name, store)


def test_a_snapshot_keeps_its_database_when_the_broker_flushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixtures.unpack("queues-rocksdb-5.5.0", tmp_path)
    snapshot = Snapshot.open(store)
    expected = [bounds for topic in snapshot.topics() for bounds in snapshot.queues(topic)]
    held = Snapshot.open(store)
    topics = held.topics()
    monkeypatch.setattr(RocksQueues, "is_current", lambda *_: False)
    held.sources._open_database()  # as a task of the same reader does
    assert [bounds for topic in topics for bounds in held.queues(topic)] == expected
