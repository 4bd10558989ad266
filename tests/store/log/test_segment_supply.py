"""Supply of segments: allocated ahead, named when the log rolls, refused on a full disk and without the lock."""

from pathlib import Path

import pytest

from segmentlog.store.errors import NoSpaceError, StoreInUseError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.naming import segment_name
from segmentlog.store.log.segment_supply import SegmentSupply
from support.crash.faults import Failure, Fault, FaultyFileSystem
from support.crash.memory_fs import MemoryFileSystem

SIZE = 1000


def test_after_a_full_disk_the_segment_is_allocated_again() -> None:
    for call in ("create", "allocate", "sync", "rename"):
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk, Fault(error=Failure.ENOSPC, at=1, calls=(call,)))
        disk.make_dir("/log")
        supply = SegmentSupply(fs, "/spare", "/log", SIZE, lambda: None)
        with pytest.raises(NoSpaceError):
            supply.take(0)
        assert not disk.list_dir("/log")
        supply.take(0)
        assert [(listed.name, listed.size) for listed in disk.list_dir("/log")] == [(segment_name(0), SIZE)]
        assert disk.size("/spare") is None


def test_a_spare_file_that_was_exchanged_is_not_used(tmp_path: Path) -> None:
    fs, spare = LocalWritableFileSystem(), tmp_path / "spare"
    for exchange in (spare.unlink, lambda: spare.write_bytes(b"another one's")):
        supply = SegmentSupply(fs, str(spare), str(tmp_path), SIZE, lambda: None)
        supply.prepare()
        spare.rename(tmp_path / "kept")  # so that its number is not given again
        spare.touch()
        exchange()
        made = supply.take(0)
        assert made.is_at(str(tmp_path / segment_name(0)))
        assert (tmp_path / segment_name(0)).read_bytes() == bytes(SIZE)
        made.close()
        supply.close()


def test_without_the_lock_of_the_store_no_segment_is_made_or_named(tmp_path: Path) -> None:
    lost: list[bool] = []

    def own() -> None:
        if lost:
            raise StoreInUseError("this process lost the lock of the store")

    supply = SegmentSupply(LocalWritableFileSystem(), str(tmp_path / "spare"), str(tmp_path), SIZE, own)
    supply.prepare()
    lost.append(True)
    with pytest.raises(StoreInUseError):
        supply.take(0)
    supply.close()
    assert [path.name for path in tmp_path.iterdir()] == ["spare"]
    (tmp_path / "spare").unlink()
    with pytest.raises(StoreInUseError):
        supply.prepare()
    assert not list(tmp_path.iterdir())
