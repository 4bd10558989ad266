"""Stores with queues in RocksDB are not written; the way out that the errors name makes stores that are."""

from collections.abc import Callable
from pathlib import Path

import pytest

from segmentlog.store import (
    MessageStore,
    Outgoing,
    QueueKey,
    QueueSource,
    RetentionSettings,
    Snapshot,
    UnsupportedStoreError,
)
from segmentlog.store.directory.layout import rocksdb_queues
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.ha.promotion import promote
from segmentlog.store.maintenance import rebuild_queues, verify
from segmentlog.store.maintenance.expiry import apply_retention
from segmentlog.store.maintenance.verification import Kind
from support import conformance, fixtures, reading, writing

pytestmark = pytest.mark.conformance
NAMES = fixtures.in_rocksdb()
CHANGES: list[Callable[[Path], object]] = [
    MessageStore.open,
    lambda store: apply_retention(store, RetentionSettings()),
    promote,
]


@pytest.mark.parametrize("change", CHANGES, ids=["open", "retention", "promote"])
@pytest.mark.parametrize("name", NAMES)
def test_a_store_with_rocksdb_is_left_as_it_is(name: str, change: Callable[[Path], object], tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    (store / "lock").touch()
    before = writing.tree(store)
    with pytest.raises(UnsupportedStoreError, match=r"defaultRocksDB.*segmentlog rebuild .*storeType=default"):
        change(store)
    assert writing.tree(store) == before


@pytest.mark.parametrize("name", NAMES)
def test_rebuilt_queues_make_a_store_that_is_written(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    directory = rocksdb_queues(LocalFileSystem(), str(store))
    assert directory is not None
    for moved in {Path(directory), store / "consumequeue"}:
        moved.rename(tmp_path / moved.name)
    sizes = fixtures.config(name)
    rebuild_queues(str(store), store / "consumequeue", entries_per_segment=sizes["mappedFileSizeConsumeQueue"] // 20)
    conformance.check_rows(name, list(reading.read(Snapshot.open(store))), QueueSource.AUTO)
    with MessageStore.open(store, writing.store_config(fixtures.config(name))) as writer:
        written = writer.append(Outgoing(topic="Added", body=b"one more"))
    assert Snapshot.open(store).bounds(QueueKey("Added", 0)).max_offset == written.queue_offset + 1


@pytest.mark.parametrize("name", NAMES)
def test_a_database_is_not_a_fault(name: str, tmp_path: Path) -> None:
    report = verify(fixtures.unpack(name, tmp_path))
    assert report.is_sound
    assert Kind.QUEUES_UNKNOWN in {finding.kind for finding in report.findings}
