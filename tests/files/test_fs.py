"""The seam to the operating system; what it refuses is in tests/attack/test_hostile_directories.py."""

import errno
import mmap
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.files.fs import Listed, LocalFileSystem, release, space_of

FS = LocalFileSystem()


def test_a_directory_is_listed_in_order_and_no_other_path_lists_files(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"12345")
    (tmp_path / "a").mkdir()
    (tmp_path / "c").symlink_to("b")
    os.mkfifo(tmp_path / "d")
    os.utime(tmp_path / "b", ns=(0, 1_763_700_000_123_999_999))
    found = [entry if entry.is_file else entry._replace(size=0, modified_ms=0) for entry in FS.list_dir(str(tmp_path))]
    assert found == [
        Listed("a", is_dir=True, is_link=False, is_file=False),
        Listed("b", is_dir=False, is_link=False, size=5, modified_ms=1_763_700_000_123),
        Listed("c", is_dir=False, is_link=True, is_file=False),
        Listed("d", is_dir=False, is_link=False, is_file=False),
    ]
    assert [FS.list_dir(f"{tmp_path}/{name}") for name in ("missing", "b", "b/below", "x" * 300, "nul\0")] == [[]] * 5


def test_a_read_ends_with_the_file_and_a_missing_file_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    reads = {(0, 4): b"0123", (8, 4): b"89", (10, 4): b"", (0, 99): b"0123456789", (3, 0): b""}
    assert {place: FS.read(str(tmp_path / "f"), *place) for place in reads} == reads
    path = str(tmp_path / "none")
    assert FS.size(path) is FS.size(f"{__file__}/below") is None
    for ask in (FS.map, FS.data_end, lambda p: FS.read(p, 0, 1)):
        with pytest.raises(FileNotFoundError):
            ask(path)


def test_a_map_is_read_only_outlives_the_name_and_shows_bytes_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.touch()
    assert FS.map(str(path)).size == 0
    path.write_bytes(b"some bytes")
    before = len(os.listdir("/proc/self/fd"))
    mapped = FS.map(str(path))
    with path.open("r+b") as file:
        file.write(b"more")
    path.unlink()
    assert mapped.tobytes() == b"more bytes"
    assert not mapped.flags.writeable
    del mapped
    assert str(path) not in Path("/proc/self/maps").read_text()
    assert len(os.listdir("/proc/self/fd")) == before


BLOCK = 1 << 16


@pytest.mark.parametrize(
    ("size", "written", "expected"),
    [
        (0, {}, 0),
        (100, {}, 0),
        (100, {0: b"a"}, 1),
        (100, {0: b"a", 99: b"b"}, 100),
        (10 * BLOCK, {BLOCK - 1: b"a"}, BLOCK),
        (10 * BLOCK, {BLOCK: b"a"}, BLOCK + 1),
        (10 * BLOCK, {0: b"a", 7 * BLOCK: bytes(BLOCK)}, 1),  # zeros that were written, after a hole
        (10 * BLOCK, {0: b"a", 3 * BLOCK + 5: b"b", 9 * BLOCK: bytes(BLOCK)}, 3 * BLOCK + 6),
        (3 * BLOCK + 7, {3 * BLOCK: b"tail" + bytes(3)}, 3 * BLOCK + 4),
        *(
            (50 * BLOCK, {at: b"a" + bytes(50 * BLOCK - at - 1)}, at + 1)
            for at in (0, BLOCK, 16 * BLOCK, 34 * BLOCK - 1)
        ),
    ],
)
def test_data_end(tmp_path: Path, size: int, written: dict[int, bytes], expected: int) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(size)
        for offset, data in written.items():
            file.seek(offset)
            file.write(data)
    assert FS.data_end(str(path)) == expected


def test_data_end_where_holes_cannot_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(bytes(3 * BLOCK) + b"x" + bytes(BLOCK))

    def lseek(fd: int, offset: int, whence: int) -> int:
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(os, "lseek", lseek)
    assert FS.data_end(str(tmp_path / "f")) == 3 * BLOCK + 1


def _resident_kib(path: str) -> int:
    """Memory of this process that is pages of a mapped file."""
    lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
    at = [number for number, line in enumerate(lines) if line.endswith(path)]
    return sum(int(line.split()[1]) for each in at for line in lines[each : each + 5] if line.startswith("Rss:"))


def test_released_pages_leave_the_process_and_can_be_read_again(tmp_path: Path) -> None:
    path = str(tmp_path / "segment")
    Path(path).write_bytes(b"\x01" * (1 << 20))
    whole = LocalFileSystem().map(path)
    part = LocalFileSystem().map(path, 5000)
    for mapped in (whole, part):
        before = int(mapped.sum())
        assert _resident_kib(path) >= mapped.size >> 10
        release(mapped)
        assert _resident_kib(path) == 0
        assert int(mapped.sum()) == before
        release(mapped)


def test_release_leaves_memory_without_a_file_alone() -> None:
    anonymous = np.frombuffer(mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    anonymous[:] = 7
    release(anonymous)
    release(np.zeros(5, np.uint8))
    assert (anonymous == 7).all()


def test_the_space_is_the_file_systems(tmp_path: Path) -> None:
    found = space_of(str(tmp_path))
    assert found is not None
    usage = shutil.disk_usage(tmp_path)
    assert found.total == usage.total
    assert found.total > found.free >= found.usable > 0
    assert abs(found.usable - usage.free) < 1 << 30  # others write meanwhile
    assert space_of(str(tmp_path / "missing")) is None
