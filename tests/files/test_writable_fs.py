import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmentlog.store.errors import (
    MissingFileError,
    NoSpaceError,
    NotAStoreError,
    StoreIOError,
    UnsafeFileError,
)
from segmentlog.store.files import writable_fs
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.buffers import Pieces

FS = LocalWritableFileSystem()


def fails(number: int) -> Callable[..., Any]:
    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


def test_bytes_go_where_they_are_told_to_also_if_a_write_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    file = FS.create(str(path))
    file.write(4, b"five")
    file.write(0, memoryview(b"one"))
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    file.write(8, bytearray(b"!0123456789"))
    file.sync()
    file.close()
    assert path.read_bytes() == b"one\0five!0123456789"


def scattered(count: int) -> tuple[Pieces, bytes]:
    """Pieces of two buffers in turns, some of them empty, and what they are."""
    texts = bytes(range(256)), b"of the other"
    which = np.arange(count) % 2
    lengths = np.where(which == 1, 12, np.arange(count) % 200)
    starts = np.where(which == 1, 0, np.arange(count) % 50)
    pieces = Pieces(tuple(np.frombuffer(text, np.uint8) for text in texts), which, starts, lengths)
    return pieces, pieces.join().tobytes()


def check_written(path: Path, count: int) -> int:
    """Check that so many pieces are written after other bytes; return their number of bytes."""
    file = FS.create(str(path))
    file.write(0, b"in front")
    pieces, content = scattered(count)
    file.write(8, pieces)
    file.close()
    assert path.read_bytes() == b"in front" + content
    return len(content)


@pytest.mark.parametrize("count", [0, 1, 2, 1023, 1024, 1025, 5000])
def test_pieces_are_written_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    check_written(tmp_path / "file", count)
    monkeypatch.setattr(writable_fs, "_pwritev", None)  # where the system does not take them, they are copied together
    check_written(tmp_path / "copied", count)


@pytest.mark.parametrize("most", [1, 7, 300])
def test_pieces_that_are_cut_short_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """The kernel takes fewer bytes than it was given, and is interrupted now and then."""
    calls = 0

    def pwritev(fd: int, table: int, count: int, at: int) -> int:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            ctypes.set_errno(errno.EINTR)
            return -1
        assert count <= 1024
        vectors = np.ctypeslib.as_array(ctypes.cast(table, ctypes.POINTER(ctypes.c_uint64)), (count, 2))
        joined = b"".join(ctypes.string_at(address, length) for address, length in vectors.tolist())
        return os.pwrite(fd, joined[:most], at)

    monkeypatch.setattr(writable_fs, "_pwritev", pwritev)
    assert calls > check_written(tmp_path / "file", 60) / most


@pytest.mark.parametrize(
    ("wrote", "number", "raised"), [(-1, errno.ENOSPC, NoSpaceError), (-1, errno.EIO, OSError), (0, 0, OSError)]
)
def test_pieces_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrote: int, number: int, raised: type[Exception]
) -> None:
    def pwritev(*_: int) -> int:
        ctypes.set_errno(number)
        return wrote

    monkeypatch.setattr(writable_fs, "_pwritev", pwritev)
    file = FS.create(str(tmp_path / "file"))
    with pytest.raises(raised, match=os.strerror(number or errno.EIO)):
        file.write(0, scattered(5)[0])
    file.close()


def test_files_get_longer_and_never_shorter_and_allocated_space_is_zero(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = FS.create(str(path))
    for size in (1 << 20, 10):
        file.extend(size)
        assert (path.stat().st_size, path.stat().st_blocks) == (1 << 20, 0)
    file.write(0, b"abc")
    file.allocate(10_000)
    file.close()
    assert path.read_bytes() == b"abc".ljust(1 << 20, b"\0")
    assert path.stat().st_blocks * 512 >= 10_000


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_a_full_disk_is_reported_as_no_space_unless_by_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = FS.create(str(tmp_path / "file"))
    for name in ("pwrite", "posix_fallocate", "ftruncate", "fdatasync"):
        monkeypatch.setattr(writable_fs.os, name, fails(number))
    calls: list[Callable[[], None]] = [lambda: file.write(0, b"a"), lambda: file.allocate(10), lambda: file.extend(10)]
    for call in [*calls, file.sync]:  # what a sync did not get onto the device is lost: there is no second try
        is_full = number != errno.EIO and call != file.sync
        with pytest.raises(NoSpaceError if is_full else StoreIOError, match=os.strerror(number)) as raised:
            call()
        assert raised.value.path == str(tmp_path / "file")
        assert raised.value.fix
        assert "there is no room: " in str(raised.value) if is_full else raised.value.errno == number
    file.close()


def test_a_file_is_not_made_twice_and_open_requires_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        FS.open(str(path))
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        FS.create(str(path))
    file = FS.open(str(path))
    file.write(0, b"y")
    file.close()
    assert path.read_bytes() == b"yine"


@pytest.mark.parametrize("call", [FS.open, FS.sync_dir])
def test_links_are_not_followed(tmp_path: Path, call: Callable[[str], object]) -> None:
    target = tmp_path / "target"
    target.mkdir() if call == FS.sync_dir else target.write_bytes(b"")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises((UnsafeFileError, MissingFileError)) as raised:
        call(str(tmp_path / "link"))
    if call == FS.open:
        assert "symbolic link" in str(raised.value)


@pytest.mark.timeout(10)
def test_pipes_and_directories_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsafeFileError, match="not a plain file"):
        FS.open(str(tmp_path / "pipe"))
    with pytest.raises((UnsafeFileError, IsADirectoryError)):
        FS.open(str(tmp_path))


def test_directories_are_made_once_and_in_a_directory(tmp_path: Path) -> None:
    for call in (FS.make_dir, FS.make_dir, FS.sync_dir):
        call(str(tmp_path / "a"))
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for name in ("file", "link"):
        with pytest.raises(UnsafeFileError, match="wants a directory here and something else is there") as raised:
            FS.make_dir(str(tmp_path / name))
        assert raised.value.fix
        assert raised.value.path == str(tmp_path / name)
    for parent in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(NotAStoreError, match="its parent is not a directory") as missing:
            FS.make_dir(str(parent / "a"))
        assert missing.value.path == str(parent / "a")
        assert f"Make {parent} first" in str(missing.value)
