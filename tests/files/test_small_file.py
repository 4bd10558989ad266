"""Small files, replaced whole."""

import os
from pathlib import Path

import pytest

from segmentlog.store.errors import NoSpaceError
from segmentlog.store.files.small_file import replace_file
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
def test_what_goes_wrong_leaves_the_old_one(tmp_path: Path, call: str) -> None:
    path, making = str(tmp_path / "file"), str(tmp_path / "making")
    (tmp_path / "file").write_bytes(b"old")
    before = open_files()
    fs = FaultyFileSystem(LocalWritableFileSystem(), Fault(error=Failure.ENOSPC, at=1, calls=(call,)))
    with pytest.raises(NoSpaceError):
        replace_file(fs, path, b"new", making)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert open_files() == before
    replace_file(fs, path, b"new", making)
    assert (tmp_path / "file").read_bytes() == b"new"
