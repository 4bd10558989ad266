import os
from pathlib import Path

import pytest

from segmentlog.store.errors import UnsafeFileError
from segmentlog.store.files.plain_files import PlainFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "one").write_bytes(b"1")
    os.utime(folder / "one", (5, 5))
    return folder


def test_plain_files_alone_are_listed(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "one")
    (folder / "directory").mkdir()
    os.mkfifo(folder / "fifo")
    with PlainFiles.open(str(folder.parents[1]), "a", "b") as files:
        assert files.modified() == {"one": 5.0}


def test_a_link_that_replaces_the_directory_leads_nowhere(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "one").write_bytes(b"not ours")
    with PlainFiles.open(str(folder.parents[1]), "a", "b") as files:
        names = list(files.modified())
        folder.rename(folder.with_name("moved"))
        folder.symlink_to(elsewhere)
        assert [files.unlink(name) for name in names] == [True]
        assert files.unlink("one") is False
    assert (elsewhere / "one").exists()
    assert not (folder.with_name("moved") / "one").exists()


@pytest.mark.parametrize("name", ["a", "b"])
def test_links_and_files_on_the_way_are_refused_but_for_a_link_to_the_first_directory(
    folder: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "named").symlink_to(folder.parents[1])
    with PlainFiles.open(str(tmp_path / "named"), "a", "b") as files:
        assert list(files.modified()) == ["one"]
    with pytest.raises(FileNotFoundError):
        PlainFiles.open(str(tmp_path / "named"), "a", "none")
    place = folder if name == "b" else folder.parent
    place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path / "moved")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with pytest.raises(UnsafeFileError, match="a symbolic link or a file") as error:
            PlainFiles.open(str(tmp_path / "root"), "a", "b")
        assert error.value.path == str(place)
        place.unlink()
        place.write_bytes(b"")
    assert len(os.listdir("/proc/self/fd")) == before
