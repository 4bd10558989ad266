from collections.abc import Callable

import pytest

from segmentlog.store.config import StoreConfig
from segmentlog.store.directory.own_state import OwnState
from segmentlog.store.format import durable_point
from segmentlog.store.format.durable_point import FILE_BYTES, SLOT_BYTES
from segmentlog.store.format.index_file import EMPTY_INDEX
from segmentlog.store.recovery.durability import Durability
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind, Op, RecordingFileSystem

PATH = "/store"
DURABLE = f"{PATH}/.segmentlog/durable"


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


@pytest.mark.parametrize("end", [stop, Durability.note_closed], ids=["killed", "closed"])
@pytest.mark.parametrize("notes", [0, 1, 2, 3])
def test_the_slot_that_was_synced_last_is_not_overwritten(notes: int, end: Callable[[Durability], None]) -> None:
    fs = RecordingFileSystem(new_disk())
    for log in range(3000, 3004):
        opened = begun(fs)
        opened.note_queues(log, 0, EMPTY_INDEX, 0, 0)
        for number in range(notes):
            opened.note_log(log + number)
        end(opened)
        opened.close()
    check_slots(fs.recording.ops)


def check_slots(ops: list[Op]) -> None:
    """No write changes the slot that was synced last."""
    file, synced, pending = bytearray(FILE_BYTES), -1, -1
    for op in (op for op in ops if op.path == DURABLE):
        if op.kind is Kind.WRITE:
            before = bytes(file)
            file[op.position : op.position + len(op.data)] = op.data
            assert op.position in {0, SLOT_BYTES}
            assert op.position != synced or bytes(file) == before
            pending = op.position
        elif op.kind is Kind.SYNC and pending >= 0:
            synced, pending = pending, -1


def test_the_found_point_is_made_durable_before_the_other_slot_is_written() -> None:
    """Of a process that was killed the newest point may be in the page cache alone."""
    disk = new_disk()
    opened = begun(RecordingFileSystem(disk))
    opened.note_queues(1000, 0, EMPTY_INDEX, 0, 0)
    opened.note_log(2000)
    stop(opened)
    fs = RecordingFileSystem(disk)
    newest = durable_point.position_of(disk.read(DURABLE, 0, FILE_BYTES))
    begun(fs)
    done = [(op.kind, op.position) for op in fs.recording.ops if op.path == DURABLE]
    assert done[:3] == [(Kind.WRITE, newest), (Kind.SYNC, 0), (Kind.WRITE, SLOT_BYTES - newest)]


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
