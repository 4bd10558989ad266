"""Replaced file: a look says once that there is another file, or none any more."""

from pathlib import Path

from segmentlog.store.files.replaced_file import ReplacedFile
from segmentlog.store.files.writable_fs import LocalWritableFileSystem


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


def test_what_is_written_in_place_is_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first")
    watched = ReplacedFile(LocalWritableFileSystem(), str(path))
    assert watched.look()
    path.write_bytes(b"other")
    assert not watched.look()
    watched.close()
