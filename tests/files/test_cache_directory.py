from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from segmentlog.store.files.cache_directory import CacheDirectory


def test_content_is_read_as_it_was_put(tmp_path: Path) -> None:
    files = CacheDirectory(str(tmp_path / "a" / "b"))
    assert files.read("x") is None
    assert list(files.names()) == []
    for content in (b"", b"one", b"another" * 1000):
        files.replace("x", pa.py_buffer(content))
        assert files.read("x").to_pybytes() == content
    assert list(files.names()) == ["x"]
    assert (tmp_path / "a" / "b").stat().st_mode & 0o77 == 0
    files.remove("x")
    files.remove("x")
    assert files.read("x") is None


def test_a_name_that_cannot_be_replaced_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    files = CacheDirectory(str(tmp_path))
    with pytest.raises(OSError, match="x"):
        files.replace("x", pa.py_buffer(b"content"))
    assert list(files.names()) == ["x"]


def test_a_mapped_file_stays_as_it_was(tmp_path: Path) -> None:
    files = CacheDirectory(str(tmp_path))
    files.replace("x", pa.py_buffer(b"old"))
    old = files.read("x")
    files.replace("x", pa.py_buffer(b"new!"))
    assert (old.to_pybytes(), files.read("x").to_pybytes()) == (b"old", b"new!")


def test_writers_at_once_leave_one_of_their_files(tmp_path: Path) -> None:
    def put(number: int) -> None:
        for _ in range(50):
            CacheDirectory(str(tmp_path)).replace("x", pa.py_buffer(bytes([number]) * 10_000))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(4)))
    content = CacheDirectory(str(tmp_path)).read("x").to_pybytes()
    assert content in {bytes([number]) * 10_000 for number in range(4)}
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
