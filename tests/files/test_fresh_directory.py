import os
from pathlib import Path

import pytest

from segmentlog.store import ConfigError, SegmentLogError
from segmentlog.store.files.fresh_directory import FreshDirectory


@pytest.mark.parametrize("is_there", [False, True])
def test_files_appear_at_once_at_their_full_size(tmp_path: Path, *, is_there: bool) -> None:
    target = tmp_path / "new"
    if is_there:
        target.mkdir()
    with FreshDirectory(str(target)) as fresh:
        fresh.write("a/0/file", 4, b"later", file_bytes=100)
        fresh.write("a/0/file", 0, b"1234", file_bytes=100)
        fresh.write("b/file", 0, b"x", file_bytes=1)
        assert not target.exists() or not list(target.iterdir())
        fresh.publish()
    assert (target / "a/0/file").read_bytes() == b"1234later" + bytes(91)
    assert (target / "b/file").read_bytes() == b"x"
    assert os.listdir(tmp_path) == ["new"]


def test_permissions_are_bounded_by_the_directory_that_is_copied(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(0o700)
    held = os.umask(0)
    try:
        with FreshDirectory(str(tmp_path / "copy"), like=str(secret)) as fresh:
            fresh.write("a/0/file", 0, b"x", file_bytes=1)
            fresh.publish()
    finally:
        os.umask(held)
    made = [tmp_path / "copy", tmp_path / "copy/a", tmp_path / "copy/a/0", tmp_path / "copy/a/0/file"]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700, 0o700, 0o700, 0o600]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with FreshDirectory(str(tmp_path / "new")) as fresh:
            fresh.write("file", 0, b"x", file_bytes=1)
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        fail()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "full", "link"])
def test_an_existing_target_is_refused_and_kept(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "new"
    (tmp_path / "elsewhere").mkdir()
    if kind == "file":
        target.write_text("mine")
    elif kind == "link":
        target.symlink_to(tmp_path / "elsewhere")
    else:
        (target / "mine").mkdir(parents=True)
    with pytest.raises(ConfigError, match="something is there") as raised, FreshDirectory(str(target)):
        pass
    assert raised.value.path == str(target)
    with pytest.raises(ConfigError, match="directory not found"), FreshDirectory(str(tmp_path / "no" / "new")):
        pass
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "new"]


def test_publish_does_not_overwrite_a_directory_made_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "new"
    with FreshDirectory(str(target)) as fresh:
        fresh.write("file", 0, b"x", file_bytes=1)
        target.mkdir()
        (target / "theirs").touch()
        with pytest.raises(ConfigError, match="something is there"):
            fresh.publish()
    assert os.listdir(target) == ["theirs"]
    assert os.listdir(tmp_path) == ["new"]


def test_the_directory_of_a_killed_writer_is_deleted_and_that_of_a_running_writer_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "new"
    killed, foreign = tmp_path / "new.unfinished-0123abcd", tmp_path / "new.unfinished-mine"
    for path in (killed, foreign):
        (path / "a").mkdir(parents=True)
    with FreshDirectory(str(target)) as running:
        running.write("a/file", 0, b"1", file_bytes=1)
        assert not killed.exists()
        with FreshDirectory(str(target)) as other:
            other.write("b/file", 0, b"2", file_bytes=1)
            assert len(list(tmp_path.glob("new.unfinished-*"))) == 3
        running.publish()
    assert sorted(os.listdir(tmp_path)) == ["new", "new.unfinished-mine"]
    assert (target / "a/file").read_bytes() == b"1"


def test_a_directory_that_cannot_be_finished_leaves_neither_itself_nor_its_lock(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(SegmentLogError), FreshDirectory(str(tmp_path / "new"), like=str(tmp_path / "none")):
        pass
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(tmp_path) == []
