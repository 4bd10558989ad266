"""Repair on open: what is cut, which queues and index are written again, and what a broker's files keep."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey, StoreReader
from segmentlog.store.directory.file_sizes import check_file_sizes
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.index_file import Geometry
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.index.writer import IndexWriter
from segmentlog.store.maintenance import verify
from segmentlog.store.queues.writer import QueueWriter
from segmentlog.store.recovery.apply import Repair
from segmentlog.store.recovery.durability import Durability
from support.broker_index import Index
from support.written_stores import SMALL, tree

KEY = QueueKey("T", 0)
GEOMETRY = Geometry(SMALL.index_slots, SMALL.index_entries)


class Opening:
    """Repairs of one closed store; ``ours`` is whether its durable point is believed."""

    def __init__(self, path: Path, stack: ExitStack, *, ours: bool) -> None:
        fs, paths = LocalWritableFileSystem(), StorePaths(str(path))
        self.durability = Durability(fs, str(path), SMALL, was_ours=ours)
        stack.callback(self.durability.close)
        listed = check_file_sizes(fs, str(path), SMALL, self.durability.found)
        entries = SMALL.queue_segment_entries
        queues = QueueWriter(fs, paths.consume_queues, paths.making_queue_file, entries, listed)
        stack.callback(queues.close)
        index = IndexWriter(fs, paths.index, paths.making_index_file, GEOMETRY)
        stack.callback(index.close)
        self.repair = Repair(fs, str(path), SMALL, durability=self.durability, queues=queues, index=index)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", SMALL) as store:
        for at in range(200):
            store.append(Outgoing(topic="T", body=b"x" * 200, keys=f"k{at}"))
    return tmp_path / "s"


def broker(path: Path) -> None:
    """Leave the files that a broker has."""
    shutil.rmtree(path / ".segmentlog")


@pytest.mark.slow
def test_cut_unlinks_later_segments_and_zeroes_its_own(path: Path, stack: ExitStack) -> None:
    segments = sorted((path / "commitlog").iterdir())
    assert len(segments) > 1
    opening = Opening(path, stack, ours=True)
    end = 10_000
    cut = opening.repair.cut(end)
    assert sorted((path / "commitlog").iterdir()) == segments[:1]
    data = segments[0].read_bytes()
    assert data[:end].rstrip(b"\0")
    assert data[end:] == bytes(len(data) - end)
    assert cut > SMALL.segment_bytes - end


@pytest.mark.slow
def test_cut_changes_nothing_at_the_end_of_the_log(path: Path, stack: ExitStack) -> None:
    before = {name: data for name, data in tree(path).items() if "commitlog" in str(name)}
    opening = Opening(path, stack, ours=True)
    assert opening.repair.cut(opening.repair.examine().end) == 0
    assert {name: data for name, data in tree(path).items() if "commitlog" in str(name)} == before


@pytest.mark.slow
def test_queues_that_were_deleted_are_written_again(path: Path, stack: ExitStack) -> None:
    before = {name: data for name, data in tree(path).items() if "consumequeue" in str(name)}
    shutil.rmtree(path / "consumequeue" / "T")
    opening = Opening(path, stack, ours=True)
    state = opening.repair.examine()
    opening.durability.begin(state.end)
    ends, corrected = opening.repair.redispatch(state, state.end)
    assert ends == {KEY: 200}
    assert corrected == 200
    stack.close()
    assert {name: data for name, data in tree(path).items() if "consumequeue" in str(name)} == before


def test_entries_of_a_broker_that_are_wrong_are_corrected_and_counted(path: Path, stack: ExitStack) -> None:
    broker(path)
    first = min((path / "consumequeue" / "T" / "0").iterdir())
    with first.open("r+b") as file:
        file.seek(5 * 20)
        file.write(bytes(40))
    opening = Opening(path, stack, ours=False)
    state = opening.repair.examine()
    opening.durability.begin(state.end)
    ends, corrected = opening.repair.redispatch(state, state.end)
    assert (ends, corrected) == ({KEY: 200}, 2)


@pytest.mark.slow
def test_queues_and_index_end_with_the_log(path: Path, stack: ExitStack) -> None:
    offset = Index(str(path / "index"), GEOMETRY).query("T", "k30")[0]
    opening = Opening(path, stack, ours=True)
    state = opening.repair.examine()
    opening.durability.begin(offset)
    opening.repair.cut(offset)
    ends, _ = opening.repair.redispatch(state, offset)
    stack.close()
    assert ends == {KEY: 30}
    index = Index(str(path / "index"), GEOMETRY)
    assert index.query("T", "k30") == []
    # The newest file had keys after the end, and was dropped: those of earlier messages are written again.
    assert [len(index.query("T", f"k{at}")) for at in range(30)] == [1] * 30


@pytest.mark.slow
def test_the_newest_time_is_that_of_the_last_record(path: Path, stack: ExitStack) -> None:
    opening = Opening(path, stack, ours=True)
    state = opening.repair.examine()
    opening.repair.redispatch(state, state.end)
    last = StoreReader.open(path).log.store_time_at(state.end - 300) or 0
    assert opening.repair.newest_timestamp(state) >= last
    assert opening.repair.newest_timestamp(state) > 0


def test_an_index_file_that_lost_its_bytes_is_written_again(path: Path) -> None:
    names = sorted((path / "index").iterdir())
    names[-1].write_bytes(b"")
    with MessageStore.open(path, SMALL):
        pass
    assert sorted((path / "index").iterdir())[:-1] == names[:-1]
    assert verify(path).is_sound


def test_empty_files_after_queues_and_index_leave_no_trace(path: Path) -> None:
    before = tree(path)
    last = max((path / "consumequeue" / "T" / "0").iterdir())
    (last.parent / f"{int(last.name) + last.stat().st_size:020d}").touch()
    (path / "index" / "20301231235959999").touch()
    with MessageStore.open(path, SMALL):
        pass
    assert verify(path).is_sound
    assert {name for name in tree(path) if name.startswith(("consumequeue", "index"))} == {
        name for name in before if name.startswith(("consumequeue", "index"))
    }
