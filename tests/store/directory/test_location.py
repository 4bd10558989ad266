"""`StoreLocation`: paths of a caller made absolute, on the file system that is given."""

import os
from pathlib import Path

import pytest

from segmentlog.store import ConfigError
from segmentlog.store.directory.location import StoreLocation
from segmentlog.store.files.fs import LocalFileSystem


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = StoreLocation.of(Path("a") / ".." / "s")
    assert (found.root, found.name) == (str(tmp_path / "s"), "s")
    assert isinstance(found.fs, LocalFileSystem)
    assert found.beside("more/") == str(tmp_path / "more")
    assert found.paths.lock == os.path.join(found.root, "lock")


def test_only_a_directory_exists(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    assert [StoreLocation.of(tmp_path / name).exists for name in ("", "link", "file", "none")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("/data/store", "/data/store"),
        ("file:/data/a%20store", "/data/a store"),
        ("file:///data/store/", "/data/store"),
        ("/data/a%20b", "/data/a%20b"),
        ("~/s", os.path.expanduser("~/s")),
        ("broker:1", os.path.abspath("broker:1")),
    ],
)
def test_a_url_of_this_machine(url: str, root: str) -> None:
    assert StoreLocation.at_url(url).root == root


@pytest.mark.parametrize("url", ["hdfs://x/y", "s3a://bucket/store", "abfss:/x"])
def test_a_url_of_another_file_system_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=f"`{url}` is not a local directory"):
        StoreLocation.at_url(url)


class Elsewhere(LocalFileSystem):
    """A file system that knows one directory, which this machine does not have."""

    def stamp(self, path: str) -> tuple[int, int] | None:
        return (1, 1) if path.rstrip("/") == "/elsewhere/s" else None


def test_another_file_system() -> None:
    assert StoreLocation.of("/elsewhere/s", Elsewhere()).exists
    assert not StoreLocation.of("/", Elsewhere()).exists
