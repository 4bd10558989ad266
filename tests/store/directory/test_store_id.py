import shutil
from pathlib import Path

import pytest

from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.follow import store_id
from segmentlog.store.sink import ensure_store_id


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "store" / ".segmentlog").mkdir(parents=True)
    return tmp_path / "store"


def test_a_name_is_given_once_and_goes_along(path: Path, tmp_path: Path) -> None:
    assert store_id(str(path)) is None
    made = ensure_store_id(LocalWritableFileSystem(), str(path))
    assert ensure_store_id(LocalWritableFileSystem(), str(path)) == made == store_id(str(path))
    assert store_id(str(shutil.copytree(path, tmp_path / "copy"))) == made
    assert sorted(file.name for file in (path / ".segmentlog").iterdir()) == ["id"]


def test_two_stores_have_two_names(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / ".segmentlog").mkdir(parents=True)
    fs = LocalWritableFileSystem()
    assert ensure_store_id(fs, str(path)) != ensure_store_id(fs, str(other))


@pytest.mark.parametrize("content", [b"", b"0123", b"\0" * 33, b"Z" * 32, b"../../etc/passwd"])
def test_what_is_no_name_is_replaced(path: Path, content: bytes) -> None:
    (path / ".segmentlog" / "id").write_bytes(content)
    assert store_id(str(path)) is None
    made = ensure_store_id(LocalWritableFileSystem(), str(path))
    assert store_id(str(path)) == made


def test_a_store_that_is_not_ours_has_none(tmp_path: Path) -> None:
    assert store_id(str(tmp_path)) is None
    assert store_id(str(tmp_path / "nowhere")) is None
