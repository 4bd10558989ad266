import os
from pathlib import Path

import pytest

from segmentlog.store.errors import UnsafeFileError
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
    *([(end // 2, end)] for end in (*range(1, 20), *range(100, 200), *range(4080, 4097))),  # all of a word and a page
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
