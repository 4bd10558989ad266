import pytest

from segmentlog.store.config import StoreConfig
from segmentlog.store.directory.own_state import OwnState
from segmentlog.store.format.index_file import EMPTY_INDEX
from segmentlog.store.recovery.durability import Durability
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import RecordingFileSystem

PATH = "/store"


def begun(fs: RecordingFileSystem, *, was_ours: bool = True) -> Durability:
    opened = Durability(fs, PATH, StoreConfig(), was_ours=was_ours)
    opened.begin(1000)
    return opened


def new_disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_dir(PATH)
    return disk


def stop(opened: Durability) -> None:
    """As a process does that is killed."""
    opened.close()


@pytest.mark.parametrize("was_ours", [True, False])
def test_records_of_a_broker_are_not_reported_as_sealed(was_ours: bool) -> None:
    """An opening that is killed leaves a store that is ours, with records of a broker after the point."""
    disk = new_disk()
    opened = begun(RecordingFileSystem(disk))
    opened.note_queues(1000, 0, EMPTY_INDEX, 0, 0)
    stop(opened)
    begun(RecordingFileSystem(disk), was_ours=was_ours)
    assert OwnState.read(disk, PATH, is_signed=True).sealed_from == (1000 if was_ours else None)


@pytest.mark.parametrize(("is_closed", "is_signed"), [(True, True), (True, False), (False, True)])
def test_a_store_was_closed_if_no_other_process_had_it_since(is_closed: bool, is_signed: bool) -> None:
    disk = new_disk()
    opened = begun(RecordingFileSystem(disk))
    opened.note_queues(3000, 0, EMPTY_INDEX, 0, 0)
    assert opened.point.log == 3000
    if is_closed:
        opened.note_closed()
    opened.close()
    again = Durability(disk, PATH, StoreConfig(), was_ours=is_signed)
    assert again.was_closed == (is_closed and is_signed)
