import os
from pathlib import Path

import pytest

from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.retention.state import FileId, FileKind
from segmentlog.store.retention.survey import KnownLog, StoreFiles
from segmentlog.store.types import QueueKey
from support.small_store import CONFIG, write_small_store

ORDERS = QueueKey("orders", 0)
NOW_MS = 1_763_700_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_small_store(tmp_path / "store")


def files(path: Path) -> StoreFiles:
    return StoreFiles(LocalFileSystem(), str(path))


def test_segments_have_their_sizes_and_times(path: Path) -> None:
    found = sorted((path / "commitlog").iterdir())
    for number, segment in enumerate(found):
        os.utime(segment, ns=(0, (1_763_700_000_000 + number) * 1_000_000 + 999_999))
    (path / "commitlog" / "notes.txt").touch()
    log = files(path).log()
    assert log.base.tolist() == [int(segment.name) for segment in found]
    assert set(log.size.tolist()) == {CONFIG.segment_bytes}
    assert log.modified_ms.tolist() == [1_763_700_000_000 + number for number in range(len(found))]
    assert not log.held.any()


def test_queue_files_are_read_up_to_the_first_that_stays(path: Path) -> None:
    store = files(path)
    everything, _ = store.below(1 << 62)
    key = everything.queues.index(ORDERS)
    rows = everything.queue_of == key
    assert everything.base[rows].tolist() == [segment.base for segment in store.queue_segments(ORDERS)]
    ends = everything.last_physical[rows][:-1].tolist()
    assert len(ends) >= 3
    assert ends == sorted(ends)
    some, _ = store.below(ends[1])
    rows = some.queue_of == some.queues.index(ORDERS)
    bases = everything.base[everything.queue_of == key].tolist()
    assert some.base[rows].tolist() == [bases[0], bases[1], bases[-1]]
    assert some.last_physical[rows].tolist() == [*ends[:2], -1]


def test_a_file_that_a_copy_cut_short_stays_and_a_queue_with_one_file_is_not_read(path: Path) -> None:
    store = files(path)
    os.truncate(store.queue_segments(ORDERS)[0].path, 7)
    queues, _ = store.below(1 << 40)
    assert queues.last_physical[queues.queue_of == queues.queues.index(ORDERS)].tolist() == [2**63 - 1, -1]
    for key in store.queues():
        for segment in store.queue_segments(key)[1:]:
            os.unlink(segment.path)
    assert store.below(1 << 62)[0].queues == []


def test_index_files_have_the_end_of_their_header(path: Path) -> None:
    names = sorted(int(each.name) for each in (path / "index").iterdir())
    assert len(names) >= 3
    _, index = files(path).below(1 << 62)
    assert index.name.tolist() == names
    assert (index.end_physical[1:] > index.end_physical[:-1]).all()
    _, some = files(path).below(int(index.end_physical[0]))
    assert some.name.tolist() == names
    assert set(some.end_physical.tolist()) == {int(index.end_physical[0])}


def test_files_that_are_planned_to_go_are_left_out(path: Path) -> None:
    store = files(path)
    log, (queues, index) = store.log(), store.below(1 << 62)
    gone = [FileId(FileKind.LOG, 0), FileId(FileKind.QUEUE, 0, ORDERS), FileId(FileKind.INDEX, int(index.name[0]))]
    left = store.without(gone[:1]).without(gone[1:])
    assert left.log().base.tolist() == log.base.tolist()[1:]
    assert left.queue_segments(ORDERS) == store.queue_segments(ORDERS)[1:]
    assert left.below(1 << 62)[0].base.size == queues.base.size - 1
    assert left.below(1 << 62)[1].name.tolist() == index.name.tolist()[1:]
    of_index = 40 + 4 * CONFIG.index_slots + 20 * CONFIG.index_entries
    assert left.bytes() == store.bytes() - CONFIG.segment_bytes - CONFIG.queue_segment_entries * 20 - of_index


def test_an_empty_directory_has_no_files(tmp_path: Path) -> None:
    store = files(tmp_path)
    assert store.log().base.size == 0
    queues, index = store.below(5)
    assert (queues.base.size, index.name.size, store.bytes()) == (0, 0, 0)
    assert store.index_file(5) is None


def known_log(path: Path) -> KnownLog:
    """A store whose directory has not changed for a while, known once."""
    os.utime(path / "commitlog", ns=(0, (NOW_MS - 3_600_000) * 1_000_000))
    known = KnownLog(files(path))
    known.list_if_changed(NOW_MS)
    return known


def oldest_is_from(path: Path, known: KnownLog, now_ms: int) -> int:
    os.utime(path / "commitlog" / f"{0:020d}", ns=(0, 5_000_000))
    return int(known.list_if_changed(now_ms).modified_ms[0])


def test_a_new_name_a_clock_that_goes_back_and_a_deletion_list_again(path: Path) -> None:
    known = known_log(path)
    (path / "commitlog" / "notes.txt").touch()
    assert oldest_is_from(path, known, NOW_MS + 1) == 5
    known = known_log(path)
    os.utime(path / "commitlog" / f"{0:020d}", ns=(0, 7_000_000))
    assert known.list_if_changed(NOW_MS + 1).modified_ms[0] == 5
    assert known.list_if_changed(NOW_MS - 1).modified_ms[0] == 7
    assert oldest_is_from(path, known, NOW_MS + 1) == 7
    assert known.list_again(NOW_MS + 1).modified_ms[0] == 5
