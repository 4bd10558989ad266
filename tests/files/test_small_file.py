import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from segmentlog.store.errors import FileTooLargeError, NoSpaceError
from segmentlog.store.files.small_file import ReplacedFile, made_aside, read_front, read_whole, replace_file
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from support.written_stores import open_files


@pytest.mark.parametrize("error", [None, NoSpaceError("full"), KeyboardInterrupt()])
def test_a_file_made_aside_is_open_and_empty_and_goes_if_it_cannot_be_finished(
    tmp_path: Path, error: BaseException | None
) -> None:
    making = tmp_path / "making"
    making.write_bytes(b"left by a crash")
    with pytest.raises(type(error)) if error else nullcontext():
        with made_aside(LocalWritableFileSystem(), str(making)) as made:
            assert making.read_bytes() == b""
            if error:
                made.write(0, b"some")
                raise error
        made.write(0, b"more")
        made.close()
        assert making.read_bytes() == b"more"
    assert os.listdir(tmp_path) == (["making"] if error is None else [])
    assert not open_files(tmp_path)


@pytest.mark.parametrize("content", [b"longer than before", b"less", b"", None])
def test_a_small_file_that_is_replaced_or_goes_while_it_is_read(tmp_path: Path, content: bytes | None) -> None:
    path, making, fs = str(tmp_path / "file"), str(tmp_path / "making"), LocalWritableFileSystem()
    assert read_whole(fs, path, 7) is None
    (tmp_path / "file").write_bytes(b"what was")
    assert read_whole(fs, path, 8) == b"what was"

    class Replaced(LocalWritableFileSystem):
        is_replaced = False

        def size(self, path: str) -> int | None:
            size = super().size(path)
            if not self.is_replaced:
                self.is_replaced = True
                os.unlink(path) if content is None else replace_file(fs, path, content, making)
            return size

    assert read_whole(Replaced(), path, 18) == content


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


def test_each_replacement_is_seen_once_and_a_write_in_place_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    watched = ReplacedFile(LocalWritableFileSystem(), str(path))
    assert [watched.look(), watched.look()] == [False, False]
    for content in (b"first", b"other", b"other", None, b"other"):  # the same size, at last the same content
        path.unlink() if content is None else put(path, content)
        assert [watched.look(), watched.look()] == [True, False]
    path.write_bytes(b"again")
    assert not watched.look()
    watched.close()
    watched.close()
