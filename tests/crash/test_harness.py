"""The harness itself: states that a power cut can leave, a disk in memory that behaves as a real one, faults.

That it sees bugs of the store is tested in `test_planted_bugs.py`.
"""

from collections.abc import Callable

import numpy as np
import pytest

from segmentlog.store.errors import NoSpaceError, NotAStoreError, SegmentLogError, UnsafeFileError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from support.crash import promises
from support.crash.campaign import new_disk, prepare
from support.crash.disk_model import SECTOR_BYTES, FileModel
from support.crash.faults import Failure, Fault, FaultyFileSystem
from support.crash.memory_fs import MemoryFileSystem
from support.crash.promises import seen_by_a_reader
from support.crash.recorder import Kind, Op, RecordingFileSystem
from support.crash.states import Breadth, CrashState, States
from support.crash.workloads import batches


def test_failed_sync_cannot_be_retried() -> None:
    fs = RecordingFileSystem(new_disk())
    faulty = FaultyFileSystem(fs, Fault(error=Failure.EIO, at=1, calls=("sync",)))
    file = faulty.create("/disk/log")
    fs.sync_dir("/disk")
    file.write(0, b"x" * 100)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    fs.mark("acknowledged")
    file.write(200, b"y" * 100)
    file.sync()
    fs.mark("acknowledged")
    ends = [state.disk().files()["/disk/log"] for state in States(fs.recording, Breadth()) if state.marks == 2]
    assert {content[:100] for content in ends} == {b"x" * 100, bytes(100)}
    assert {content[200:] for content in ends} == {b"y" * 100}


# What is enumerated


def test_rename_of_an_unsynced_file_can_leave_it_empty() -> None:
    def act(fs: RecordingFileSystem) -> None:
        fs.create("/disk/tmp").write(0, b"new")
        fs.rename("/disk/tmp", "/disk/f")

    assert {None, b"", b"new"} <= {state.disk().files().get("/disk/f") for state in _states(act)}


def _states(act: Callable[[RecordingFileSystem], None], breadth: Breadth | None = None) -> list[CrashState]:
    fs = RecordingFileSystem(new_disk())
    act(fs)
    return list(States(fs.recording, breadth or Breadth()))


def _contents(act: Callable[[RecordingFileSystem], None], path: str) -> set[bytes | None]:
    fs = RecordingFileSystem(new_disk())
    act(fs)
    fs.mark("end")
    return {state.disk().files().get(path) for state in States(fs.recording, Breadth()) if state.marks}


def _durable(fs: RecordingFileSystem, path: str, content: bytes) -> None:
    file = fs.create(path)
    file.write(0, content)
    file.sync()
    fs.sync_dir("/disk")


def test_sectors_are_lost_in_every_subset() -> None:
    def act(fs: RecordingFileSystem) -> None:
        _durable(fs, "/disk/f", b"o" * 4 * SECTOR_BYTES)
        fs.open("/disk/f").write(0, b"n" * 4 * SECTOR_BYTES)

    found = _contents(act, "/disk/f")
    whole = {b"".join(b"on"[bit : bit + 1] * SECTOR_BYTES for bit in bits) for bits in np.ndindex(2, 2, 2, 2)}
    assert whole <= found
    assert all(content is not None and len(content) == 4 * SECTOR_BYTES for content in found)


def test_each_sector_may_hold_the_bytes_of_any_write() -> None:
    def contents(breadth: Breadth, *, synced: bool) -> set[bytes]:
        fs = RecordingFileSystem(new_disk())
        _durable(fs, "/disk/f", b"o" * 2 * SECTOR_BYTES)
        file = fs.open("/disk/f")
        for letter in (b"a", b"b", b"o"):  # the last one leaves what was there at first, so the others are between
            file.write(0, letter * 2 * SECTOR_BYTES)
            if synced and letter == b"b":
                file.sync()
        end = len(fs.recording.ops)
        disks = [state.disk().files()["/disk/f"] for state in States(fs.recording, breadth, lambda n: n == end)]
        return {content for content in disks if set(content) <= set(b"oab")}  # others are cut, with garbage after

    def pairs(letters: bytes) -> set[bytes]:
        return {bytes([one]) * SECTOR_BYTES + bytes([two]) * SECTOR_BYTES for one in letters for two in letters}

    assert pairs(b"oab") <= contents(Breadth(mixed=100), synced=False)
    assert not pairs(b"oab") <= contents(Breadth(mixed=0), synced=False)
    assert pairs(b"ob") <= contents(Breadth(mixed=100), synced=True)
    assert not any(b"a" in content for content in contents(Breadth(mixed=100), synced=True))


def test_size_is_lost_apart_from_bytes() -> None:
    def act(fs: RecordingFileSystem) -> None:
        _durable(fs, "/disk/f", b"o" * 100)
        fs.open("/disk/f").write(50, b"n" * 100)

    found = _contents(act, "/disk/f")
    assert {b"o" * 100, b"o" * 50 + b"n" * 100, b"o" * 50 + b"n" * 50, b"o" * 100 + bytes(50)} <= found


def test_names_are_lost_in_any_order_until_the_directory_is_synced() -> None:
    def act(fs: RecordingFileSystem) -> None:
        for name in "ab":
            fs.create(f"/disk/{name}").close()
        fs.unlink("/disk/a")

    found = {frozenset(state.disk().files()) for state in _states(act)}
    assert found == {frozenset(), frozenset({"/disk/a"}), frozenset({"/disk/b"}), frozenset({"/disk/a", "/disk/b"})}

    def synced(fs: RecordingFileSystem) -> None:
        act(fs)
        fs.sync_dir("/disk")

    assert _contents(synced, "/disk/b") == {b""}
    assert _contents(synced, "/disk/a") == {None}


def test_rename_across_directories_leaves_one_name() -> None:
    def act(fs: RecordingFileSystem) -> None:
        for name in ("from", "to"):
            fs.make_dir(f"/disk/{name}")
            fs.sync_dir("/disk")
        file = fs.create("/disk/from/f")
        file.write(0, b"x")
        file.sync()
        fs.rename("/disk/from/f", "/disk/to/g")
        fs.sync_dir("/disk/to")

    for state in _states(act):
        assert len(state.disk().files()) <= 1
    assert _contents(act, "/disk/to/g") == {b"x"}


def test_file_in_a_directory_that_is_lost_is_lost() -> None:
    def act(fs: RecordingFileSystem) -> None:
        fs.make_dir("/disk/d")
        fs.create("/disk/d/f").sync()
        fs.sync_dir("/disk/d")

    assert {frozenset(state.disk().files()) for state in _states(act)} == {frozenset(), frozenset({"/disk/d/f"})}


def test_states_are_distinct_and_the_same_each_time() -> None:
    def act(fs: RecordingFileSystem) -> None:
        for number in range(4):
            fs.create(f"/disk/{number}").write(0, bytes([number]) * 3000)

    breadth = Breadth(exhaustive_bits=3, random_subsets=20, per_point=30, seed=7)
    fs = RecordingFileSystem(new_disk())
    act(fs)
    first = [(s.point, s.description, s.disk().files()) for s in States(fs.recording, breadth)]
    second = [(s.point, s.description, s.disk().files()) for s in States(fs.recording, breadth)]
    assert first == second
    other = Breadth(exhaustive_bits=3, random_subsets=20, per_point=30, seed=8)
    assert first != [(s.point, s.description, s.disk().files()) for s in States(fs.recording, other)]
    states = States(fs.recording, breadth)
    assert sum(1 for _ in states) == states.count.states == len(states.count.digests) <= states.count.generated
    assert states.count.points == len(fs.recording.ops) + 1


def test_a_state_is_judged_again_after_each_acknowledgement() -> None:
    fs = RecordingFileSystem(new_disk())
    file = fs.create("/disk/f")
    fs.mark("a")
    file.sync()
    bare = [s for s in States(fs.recording, Breadth()) if not s.disk().files()]
    assert {state.marks for state in bare} == {0, 1}


def test_a_reader_of_queues_opens_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cut_power` reads disks once that differ in the index alone."""
    disk, asked = prepare(batches).disk, set[str]()
    node = MemoryFileSystem.node
    monkeypatch.setattr(MemoryFileSystem, "node", lambda self, path: (asked.add(path), node(self, path))[1])
    assert seen_by_a_reader(disk, 1)
    assert any(path.startswith(promises.LOG) for path in asked)
    assert not any(path.startswith(promises.INDEX) for path in asked)


# The disk in memory is as the real one


@pytest.fixture(params=["memory", "local"])
def place(request: pytest.FixtureRequest, tmp_path: object) -> tuple[WritableFileSystem, str]:
    if request.param == "memory":
        return new_disk(), "/disk"
    return LocalWritableFileSystem(), str(tmp_path)


def test_files_behave_as_on_the_real_file_system(place: tuple[WritableFileSystem, str]) -> None:
    fs, root = place
    path = f"{root}/f"
    file = fs.create(path)
    file.write(10, b"abc")
    assert (fs.size(path), fs.read(path, 8, 100), fs.data_end(path)) == (13, b"\0\0abc", 13)
    file.extend(5000)
    file.allocate(100)
    file.extend(20)
    assert (fs.size(path), fs.data_end(path)) == (5000, 13)
    file.allocate(9000)
    view = fs.map(path)
    assert view.size == 9000
    assert not view.flags.writeable
    file.write(4096, memoryview(b"xyz"))
    assert bytes(view[4096:4099]) == b"xyz"
    fs.unlink(path)
    fs.unlink(path)
    assert bytes(view[10:13]) == b"abc"
    file.write(0, bytearray(b"q"))
    file.sync()
    file.close()
    assert fs.size(path) is None
    assert bytes(view[:1]) == b"q"


def test_names_behave_as_on_the_real_file_system(place: tuple[WritableFileSystem, str]) -> None:
    fs, root = place
    fs.make_dir(f"{root}/d")
    fs.make_dir(f"{root}/d")
    for name, content in (("b", b"bb"), ("a", b"a")):
        file = fs.create(f"{root}/d/{name}")
        file.write(0, content)
        file.close()
    assert [(e.name, e.is_dir, e.is_file, e.size) for e in fs.list_dir(f"{root}/d")] == [
        ("a", False, True, 1),
        ("b", False, True, 2),
    ]
    assert [(e.name, e.is_dir, e.is_file) for e in fs.list_dir(root)] == [("d", True, False)]
    fs.rename(f"{root}/d/a", f"{root}/d/b")
    assert fs.read(f"{root}/d/b", 0, 9) == b"a"
    fs.rename(f"{root}/d/b", f"{root}/c")
    fs.sync_dir(f"{root}/d")
    assert fs.list_dir(f"{root}/d") == fs.list_dir(f"{root}/nothing") == fs.list_dir(f"{root}/c") == []
    assert fs.size(f"{root}/c/x") is None


def test_errors_are_the_errors_of_the_real_file_system(place: tuple[WritableFileSystem, str]) -> None:
    fs, root = place
    fs.create(f"{root}/f").close()
    fs.make_dir(f"{root}/d")
    for error, call in [
        (FileExistsError, lambda: fs.create(f"{root}/f")),
        (FileExistsError, lambda: fs.create(f"{root}/d")),
        (FileNotFoundError, lambda: fs.create(f"{root}/no/f")),
        (FileNotFoundError, lambda: fs.open(f"{root}/no")),
        (UnsafeFileError, lambda: fs.open(f"{root}/d")),
        (FileNotFoundError, lambda: fs.read(f"{root}/no", 0, 1)),
        (FileNotFoundError, lambda: fs.map(f"{root}/no")),
        (FileNotFoundError, lambda: fs.data_end(f"{root}/no")),
        (UnsafeFileError, lambda: fs.map(f"{root}/d")),
        (UnsafeFileError, lambda: fs.size(f"{root}/d")),
        (FileNotFoundError, lambda: fs.rename(f"{root}/no", f"{root}/x")),
        (FileNotFoundError, lambda: fs.rename(f"{root}/f", f"{root}/no/f")),
        (UnsafeFileError, lambda: fs.rename(f"{root}/f", f"{root}/d")),
        (UnsafeFileError, lambda: fs.unlink(f"{root}/d")),
        (UnsafeFileError, lambda: fs.make_dir(f"{root}/f")),
        (NotAStoreError, lambda: fs.make_dir(f"{root}/no/d")),
        (NotAStoreError, lambda: fs.make_dir(f"{root}/f/d")),
        (FileNotFoundError, lambda: fs.sync_dir(f"{root}/no")),
        (FileNotFoundError, lambda: fs.sync_dir(f"{root}/f")),
    ]:
        with pytest.raises(error) as raised:
            call()
        assert isinstance(raised.value, SegmentLogError)
    file = fs.open(f"{root}/f")
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write(0, b"x")


def test_a_full_disk_takes_the_part_of_a_write_that_fits() -> None:
    disk = new_disk()
    disk.capacity = 3 * 4096
    file = disk.create("/disk/f")
    file.allocate(2 * 4096)
    with pytest.raises(NoSpaceError):
        disk.create("/disk/g").allocate(2 * 4096)
    assert disk.size("/disk/g") == 0
    file.extend(1 << 20)  # takes no room
    file.write(0, b"x" * 8192)  # has its room
    with pytest.raises(NoSpaceError):
        file.write(8192, b"y" * 5000)
    assert disk.read("/disk/f", 8192, 5000) == b"y" * 4096 + bytes(904)
    disk.unlink("/disk/f")
    disk.open("/disk/g").write(0, b"z" * 3 * 4096)


def test_a_sector_that_is_written_again_may_be_torn_between_any_two_of_its_versions() -> None:
    file = FileModel(1, np.zeros(1024, np.uint8), np.zeros(1024, np.uint8))
    for at, byte in enumerate(b"\x01\x02"):
        file.apply(at, Op(kind=Kind.WRITE, path="/f", number=1, position=100, data=bytes([byte]) * 300))
    seen = {tuple(np.unique(file.torn(seed).data[100:400])[::-1].tolist()) for seed in range(200)}
    assert {(1, 0), (2, 0), (2, 1)} <= seen
    untouched = np.concatenate([file.torn(1).data[:100], file.torn(1).data[400:]])
    assert not untouched.any()
    file.apply(2, Op(kind=Kind.SYNC, path="/f", number=1))
    assert file.torn(1).data.tolist() == file.durable.tolist()
