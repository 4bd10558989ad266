"""Small files, replaced whole.

Replaced file: a look says once that there is another file, or none any more.
"""

import os
from pathlib import Path

import pytest

from segmentlog.store.errors import FileTooLargeError, NoSpaceError
from segmentlog.store.files.small_file import ReplacedFile, made_aside, read_front, read_whole, replace_file
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from support.crash.faults import Failure, Fault, FaultyFileSystem
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind, RecordingFileSystem
from support.written_stores import open_files


def test_a_file_takes_the_place_of_another(tmp_path: Path) -> None:
    path, making = str(tmp_path / "file"), str(tmp_path / "making")
    (tmp_path / "making").write_bytes(b"left by a crash, and longer")
    for content in (b"first", b"", b"second"):
        replace_file(LocalWritableFileSystem(), path, content, making)
        assert (tmp_path / "file").read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


def test_bytes_are_on_the_device_before_the_name_is(tmp_path: Path) -> None:
    recorder = RecordingFileSystem(MemoryFileSystem())
    replace_file(recorder, "/file", b"content", "/making")
    kinds = [op.kind for op in recorder.recording.ops]
    assert kinds == [Kind.CREATE, Kind.WRITE, Kind.SYNC, Kind.RENAME, Kind.SYNC_DIR]


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename"])
def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path, call: str) -> None:
    path, making = str(tmp_path / "file"), str(tmp_path / "making")
    (tmp_path / "file").write_bytes(b"old")
    before = open_files()
    fs = FaultyFileSystem(LocalWritableFileSystem(), Fault(error=Failure.ENOSPC, at=1, calls=(call,)))
    with pytest.raises(NoSpaceError):
        replace_file(fs, path, b"new", making)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]
    assert open_files() == before
    replace_file(fs, path, b"new", making)
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_file_made_aside_is_open_and_empty(tmp_path: Path) -> None:
    making = tmp_path / "making"
    making.write_bytes(b"left by a crash")
    with made_aside(LocalWritableFileSystem(), str(making)) as made:
        assert making.read_bytes() == b""
    made.write(0, b"more")
    made.close()
    assert making.read_bytes() == b"more"


@pytest.mark.parametrize("error", [NoSpaceError("full"), KeyboardInterrupt()])
def test_a_file_that_cannot_be_finished_goes(tmp_path: Path, error: BaseException) -> None:
    def make() -> None:
        with made_aside(LocalWritableFileSystem(), str(tmp_path / "making")) as made:
            made.write(0, b"some")
            raise error

    before = open_files()
    with pytest.raises(type(error)):
        make()
    assert os.listdir(tmp_path) == []
    assert open_files() == before


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    fs = LocalWritableFileSystem()
    assert read_whole(fs, str(tmp_path / "file"), 7) is None
    for content in (b"", b"content"):
        (tmp_path / "file").write_bytes(content)
        assert read_whole(fs, str(tmp_path / "file"), 7) == content


@pytest.mark.parametrize("content", [b"longer than before", b"less", b""])
def test_a_small_file_that_is_replaced_while_it_is_read(tmp_path: Path, content: bytes) -> None:
    path, making = str(tmp_path / "file"), str(tmp_path / "making")

    class Replaced(LocalWritableFileSystem):
        replaced = False

        def size(self, path: str) -> int | None:
            size = super().size(path)
            if not self.replaced:
                self.replaced = True
                replace_file(self, path, content, making)
            return size

    (tmp_path / "file").write_bytes(b"what was")
    assert read_whole(Replaced(), path, 18) == content


def test_a_small_file_that_goes_while_it_is_read(tmp_path: Path) -> None:
    class Gone(LocalWritableFileSystem):
        def size(self, path: str) -> int | None:
            size = super().size(path)
            os.unlink(path)
            return size

    (tmp_path / "file").write_bytes(b"what was")
    assert read_whole(Gone(), str(tmp_path / "file"), 8) is None


def test_a_file_larger_than_its_kind_is_refused_before_it_is_read(tmp_path: Path) -> None:
    class Unread(LocalWritableFileSystem):
        def read(self, path: str, offset: int, count: int) -> bytes:
            raise AssertionError("nothing is read")

    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileTooLargeError, match=f"has {1 << 40} bytes, a file of its kind has at most 99") as raised:
        read_whole(Unread(), str(path), 99)
    assert raised.value.path == str(path)
    assert raised.value.fix
    os.truncate(path, 99)
    assert read_whole(LocalWritableFileSystem(), str(path), 99) == bytes(99)


def test_the_front_of_a_file(tmp_path: Path) -> None:
    fs, path = LocalWritableFileSystem(), tmp_path / "file"
    assert read_front(fs, str(path), 4) is None
    path.write_bytes(b"abc")
    assert read_front(fs, str(path), 4) == b"abc"
    os.truncate(path, 1 << 40)
    assert read_front(fs, str(path), 4) == b"abc\0"


def put(path: Path, content: bytes) -> None:
    made = path.with_suffix(".making")
    made.write_bytes(content)
    made.rename(path)


def test_each_replacement_is_seen_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    watched = ReplacedFile(LocalWritableFileSystem(), str(path))
    assert [watched.look(), watched.look()] == [False, False]
    for content in (b"first", b"other", b"other"):  # the same size, and at last the same content
        put(path, content)
        assert [watched.look(), watched.look()] == [True, False]
    path.unlink()
    assert [watched.look(), watched.look()] == [True, False]
    put(path, b"other")
    assert [watched.look(), watched.look()] == [True, False]
    watched.close()
    watched.close()


def test_a_write_in_place_is_not_seen_as_a_replacement(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first")
    watched = ReplacedFile(LocalWritableFileSystem(), str(path))
    assert watched.look()
    path.write_bytes(b"other")
    assert not watched.look()
    watched.close()
