import re
import shutil
from pathlib import Path

import pytest

from segmentlog.store import ConfigError, MessageStore, Outgoing, QueueKey, Snapshot, StoreConfig
from segmentlog.store.directory.file_sizes import stored_sizes
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.maintenance import rebuild_index, rebuild_queues, salvage
from segmentlog.store.sink import prepare_store
from support import reading
from support.broker_index import Index
from support.small_store import CONFIG, write_small_store
from support.tampering import segments
from support.written_stores import tree

ENTRIES_BYTES = 20 * CONFIG.queue_segment_entries


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_small_store(tmp_path / "store")


def places(path: Path) -> list[tuple[object, ...]]:
    rows = reading.read(Snapshot.open(path))
    return [(row["topic"], row["queueId"], row["queueOffset"], row["body"]) for row in rows]


def test_rebuilt_files_have_the_stored_sizes_and_are_written_on(store: Path, tmp_path: Path) -> None:
    before = places(store)
    rebuild_index(Snapshot.open(store), tmp_path / "index")
    made, written = (Index.open(path).files() for path in (tmp_path / "index", store / "index"))
    assert [Path(path).stat().st_size for path in made] == [Path(path).stat().st_size for path in written]
    shutil.rmtree(store / "consumequeue")
    left = tree(store)
    for entries in (300_000, 30):
        with pytest.raises(ConfigError, match=f"queue_segment_entries is {entries}, the store's files are made for 20"):
            rebuild_queues(Snapshot.open(store), store / "consumequeue", entries_per_segment=entries)
    assert tree(store) == left
    rebuild_queues(Snapshot.open(store), store / "consumequeue")
    assert {file.stat().st_size for file in store.glob("consumequeue/*/*/*")} == {ENTRIES_BYTES}
    with MessageStore.open(store, CONFIG) as opened:
        end = opened.bounds(QueueKey("orders", 0)).max_offset
        for _ in range(3):
            opened.append(Outgoing(topic="orders", body=b"more"))
    more = [("orders", 0, end + row, b"more") for row in range(3)]
    assert sorted(places(store)) == sorted(before + more)


def test_a_salvaged_copy_has_the_stored_sizes(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with pytest.raises(ConfigError, match=f"segment_bytes is 4096, the store's files are made for {1 << 14}"):
        salvage(store, copy, segment_bytes=4096)
    assert not copy.exists()
    salvage(store, copy)
    assert {file.stat().st_size for file in copy.glob("consumequeue/*/*/*")} == {ENTRIES_BYTES}
    assert {file.stat().st_size for file in segments(copy)} == {CONFIG.segment_bytes}
    held = stored_sizes(LocalFileSystem(), str(copy), StoreConfig())
    assert held == stored_sizes(LocalFileSystem(), str(store), StoreConfig())
    with pytest.raises(ConfigError, match="queue_segment_entries is 300000, the store's files are made for 20"):
        MessageStore.open(copy, StoreConfig(segment_bytes=CONFIG.segment_bytes))
    (store / ".segmentlog" / "durable").unlink()  # then the files tell
    salvage(store, tmp_path / "other")
    assert {file.stat().st_size for file in (tmp_path / "other").glob("consumequeue/*/*/*")} == {ENTRIES_BYTES}


@pytest.mark.parametrize("entries", [30, 10])
def test_files_of_another_length_than_the_store_is_written_with_are_refused(
    store: Path, tmp_path: Path, entries: int
) -> None:
    rebuild_queues(Snapshot.open(store), tmp_path / "other", entries_per_segment=entries)
    shutil.rmtree(store / "consumequeue")
    shutil.move(tmp_path / "other", store / "consumequeue")
    before = tree(store)
    with pytest.raises(ConfigError) as raised:
        MessageStore.open(store, CONFIG)
    assert raised.value.path is not None
    assert Path(raised.value.path).is_relative_to(store / "consumequeue")
    assert re.search(rf"{20 * entries} bytes.*queue_segment_entries=20.*{ENTRIES_BYTES} bytes", str(raised.value))
    assert "rebuild" in str(raised.value)
    assert tree(store) == before


@pytest.mark.parametrize(("folder", "option"), [("commitlog", "segment_bytes"), ("index", "index_slots")])
def test_longer_files_than_the_store_is_written_with_are_refused(store: Path, folder: str, option: str) -> None:
    file = max((store / folder).iterdir())
    with file.open("r+b") as opened:
        opened.truncate(2 * file.stat().st_size)
    before = tree(store)
    with pytest.raises(ConfigError, match=rf"{file.stat().st_size} bytes.*{option}") as raised:
        MessageStore.open(store, CONFIG)
    assert raised.value.path == str(file)
    assert tree(store) == before


def test_a_file_cut_short_by_a_crash_does_not_change_the_queue_file_size(store: Path) -> None:
    with MessageStore.open(store, CONFIG) as opened:
        opened.append(Outgoing(topic="new", body=b"one"))
    file = store / "consumequeue" / "new" / "0" / f"{0:020d}"
    with file.open("r+b") as cut:
        cut.truncate(20)
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.bounds(QueueKey("new", 0)).max_offset == 1
    assert file.stat().st_size == ENTRIES_BYTES


def test_a_store_that_never_had_a_message_takes_other_sizes(tmp_path: Path) -> None:
    """As a replica that was promoted before its master sent a byte."""
    prepare_store(tmp_path / "empty", StoreConfig())
    with MessageStore.open(tmp_path / "empty", CONFIG) as opened:
        opened.append(Outgoing(topic="new", body=b"one"))
    assert segments(tmp_path / "empty")[0].stat().st_size == CONFIG.segment_bytes
    assert stored_sizes(LocalFileSystem(), str(tmp_path / "empty"), StoreConfig()).segment_bytes == CONFIG.segment_bytes
    with pytest.raises(ConfigError, match="segment_bytes is"):
        MessageStore.open(tmp_path / "empty", StoreConfig())
