import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store.errors import StoreIOError, UnreadableError, UnsafeFileError
from segmentlog.store.files import plain_reads as module
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.plain_reads import Front
from support.crash.memory_fs import front_of

FS = LocalFileSystem()
FILE_BYTES = 40_000
LIMIT = 20_000


def made(directory: Path, *spans: tuple[int, int], size: int = FILE_BYTES) -> str:
    """Make a directory with a sparse file that has data in some spans."""
    directory.mkdir()
    with (directory / "00000000000000000000").open("wb") as file:
        file.truncate(size)
        for start, stop in spans:
            file.seek(start)
            file.write(b"\1" * (stop - start))
    return str(directory)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


SPANS: list[list[tuple[int, int]]] = [
    *([(0, stop)] for stop in (1, 4095, 4096, 4097, LIMIT, LIMIT + 1)),
    *([(0, 10), span] for span in ((5000, 5001), (30_000, 30_020))),
    *([span] for span in ((100, 300), (12_000, 12_001), (FILE_BYTES - 1, FILE_BYTES))),
    [],
]


def test_the_data_of_the_only_file(tmp_path: Path) -> None:
    directories = [made(tmp_path / str(number), *spans) for number, spans in enumerate(SPANS)]
    found = FS.fronts(directories, LIMIT)
    for spans, directory, front in zip(SPANS, directories, found, strict=True):
        expected = front_of(FS, directory)
        assert front is not None
        assert expected is not None
        assert front[:3] == expected[:3]
        assert front.end == (spans[-1][1] if spans else 0)
        if front.end <= LIMIT:
            assert len(front.data) >= front.end
            assert expected.data.startswith(front.data)
    (front,) = FS.fronts([made(tmp_path / "q", (0, 30), size=100)], LIMIT)  # shorter than a page
    assert front == Front("00000000000000000000", 100, 30, b"\1" * 30 + bytes(70))


@pytest.fixture
def many(tmp_path: Path) -> list[str]:
    """Directories whose files end at every place of a word and of a page, more than are decided at once."""
    ends = [0, *range(1, 20), *range(4080, 4097), *range(100, 200)]
    return [made(tmp_path / str(number), *[(end // 2, end)] * bool(end)) for number, end in enumerate(ends)]


def test_fronts_of_many_directories_equal_single_reads(many: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [front_of(FS, directory) for directory in many]
    opened, real = [0], os.open

    def counting(*given: Any) -> int:
        opened[0] = max(opened[0], descriptors())
        return real(*given)

    before = descriptors()
    monkeypatch.setattr(os, "open", counting)
    for at_once in (len(many), 7):
        found = [front for at in range(0, len(many), at_once) for front in FS.fronts(many[at : at + at_once], LIMIT)]
        for front, one in zip(found, expected, strict=True):
            assert front is not None
            assert one is not None
            assert front[:3] == one[:3]
            assert one.data.startswith(front.data)
            assert len(front.data) >= front.end
    assert opened[0] <= before + 16


def test_one_unusual_file_among_many(many: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = made(tmp_path / "longer", (0, 10), (8000, 8001))
    asked = [*many[:30], longer, *many[30:]]
    expected = FS.fronts(many, LIMIT)
    found = FS.fronts(asked, LIMIT)
    assert found[:30] + found[31:] == expected
    assert found[30] is not None
    assert found[30].end == 8001
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, offset: pread(fd, min(count, 700), offset))
    short = FS.fronts(asked, LIMIT)
    assert [front and front.end for front in short] == [front and front.end for front in found]


def test_a_device_among_many_files_is_refused(many: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [f"{directory}/00000000000000000000" for directory in many]
    fstat, device = os.fstat, os.stat(paths[20]).st_ino

    def seen(fd: int) -> os.stat_result:
        found = fstat(fd)
        return os.stat_result((stat.S_IFCHR | 0o600, *found[1:])) if found.st_ino == device else found

    before = descriptors()
    monkeypatch.setattr(os, "fstat", seen)
    for read in (lambda: FS.fronts(many, LIMIT), lambda: FS.read_each([(path, 0, 1) for path in paths])):
        with pytest.raises(UnsafeFileError, match=paths[20]):
            read()
    assert descriptors() == before


def test_read_each_returns_none_for_an_absent_file_and_short_bytes_for_a_short_file(
    many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"{directory}/00000000000000000000" for directory in many]
    asked = [(path, number, 10) for number, path in enumerate(paths)]
    found = FS.read_each(asked)
    assert [data and len(data) for data in found] == [10] * len(many)
    os.unlink(paths[40])
    os.truncate(paths[41], 45)
    expected = [*found[:40], None, found[41] and found[41][:4], *found[42:]]
    before = descriptors()
    assert FS.read_each(asked) == expected
    assert descriptors() == before


def test_directories_that_hold_anything_else(tmp_path: Path) -> None:
    two, link, folder, empty = (tmp_path / name for name in ("two", "link", "folder", "empty"))
    made(two, (0, 1))
    (two / "other").touch()
    for each in (link, folder, empty):
        each.mkdir()
    (link / "0").symlink_to(two / "other")
    (folder / "0").mkdir()
    asked = [two, link, folder, empty, tmp_path / "missing", two / "other"]
    before = descriptors()
    assert FS.fronts(map(str, asked), LIMIT) == [None] * len(asked)
    assert descriptors() == before


def test_a_file_that_is_deleted_after_it_was_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = made(tmp_path / "a", (0, 3)), made(tmp_path / "b", (0, 5))
    only_file = module._only_file

    def deleting(directory: str) -> str | None:
        found = only_file(directory)
        if directory == first:
            (tmp_path / "a" / "00000000000000000000").unlink()
        return found

    monkeypatch.setattr(module, "_only_file", deleting)
    gone, found = FS.fronts([first, second], LIMIT)
    assert gone is None
    assert found is not None
    assert found.end == 5


def test_pieces_of_many_files_are_read_also_if_the_kernel_cuts_a_read_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 10)
    asked = [("a", 0, 3), ("missing", 0, 3), ("b", 8, 5), ("a", 10, 1), ("b", 2, 0), ("a", 1, 8)]
    pread = os.pread
    for most in (99, 3):
        monkeypatch.setattr(os, "pread", lambda fd, count, at, most=most: pread(fd, min(count, most), at))
        found = FS.read_each((str(tmp_path / name), offset, count) for name, offset, count in asked)
        assert found == [b"aaa", None, b"bb", b"", b"", b"a" * 8]
    (tmp_path / "link").symlink_to("elsewhere")
    os.mkfifo(tmp_path / "fifo")
    before = descriptors()
    for name in ("link", "fifo"):
        with pytest.raises(UnsafeFileError):
            FS.read_each([(str(tmp_path / "a"), 0, 1), (str(tmp_path / name), 0, 1)])
    assert descriptors() == before


@pytest.mark.parametrize(
    ("call", "fault", "error"),
    [
        ("open", errno.EACCES, UnreadableError),
        *((call, errno.EIO, StoreIOError) for call in ("fstat", "pread", "scandir")),
        ("pread", None, KeyboardInterrupt),
    ],
)
def test_a_failed_call_names_the_path_and_leaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, fault: int | None, error: type[BaseException]
) -> None:
    directory = made(tmp_path / "q", (0, 9))
    before = descriptors()

    def fails(*_: object) -> None:
        raise KeyboardInterrupt(directory) if fault is None else OSError(fault, os.strerror(fault))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(error, match=directory):
            FS.fronts([directory], LIMIT)
        if call != "scandir":
            with pytest.raises(error, match=directory):
                FS.read_each([(f"{directory}/00000000000000000000", 0, 1)])
    assert descriptors() == before
