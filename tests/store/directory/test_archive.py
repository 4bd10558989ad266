from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, StoreConfig
from segmentlog.store.directory.archive import check_owner, join_archive, owner_of
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.directory.own_state import store_id
from segmentlog.store.errors import ConfigError
from segmentlog.store.files.fs import LocalFileSystem

FS = LocalFileSystem()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", StoreConfig(segment_bytes=4 << 10, index=False)) as opened:
        opened.append(Outgoing(topic="T", body=b"x"))
    return tmp_path / "store"


def claimed(path: Path, owner: str) -> Path:
    (path / ".segmentlog").mkdir(parents=True)
    (path / ".segmentlog" / "archive-of").write_text(f"{owner}\n")
    return path


def test_an_empty_directory_has_no_owner_and_a_store_is_not_an_archive(tmp_path: Path, store: Path) -> None:
    assert owner_of(FS, str(tmp_path / "missing")) is None
    (tmp_path / "empty" / "lost+found").mkdir(parents=True)
    (tmp_path / "empty" / ".segmentlog").mkdir()
    assert owner_of(FS, str(tmp_path / "empty")) is None
    assert owner_of(FS, str(claimed(tmp_path / "archive", "me"))) == "me"
    with pytest.raises(ConfigError, match=r"archive: this directory is not an archive, it holds 'abort'|'checkpoint'"):
        owner_of(FS, str(store))


def test_the_archive_of_another_store_is_refused_and_an_archive_inside_of_its_store(
    tmp_path: Path, store: Path
) -> None:
    mine = store_id(str(store))
    assert mine is not None
    assert check_owner(FS, str(claimed(tmp_path / "mine", mine)), str(store)) == mine
    assert check_owner(FS, str(claimed(tmp_path / "moved", "/former/path")), str(store)) == "/former/path"
    with pytest.raises(ConfigError, match=f"archive of store {'0' * 32}, and the store is {mine}"):
        check_owner(FS, str(claimed(tmp_path / "other", "0" * 32)), str(store))
    (tmp_path / "link").symlink_to(store)
    for archive in (store, store / "archive", tmp_path, tmp_path / "link" / "archive"):
        with pytest.raises(ConfigError, match="beside each other"):
            check_owner(FS, str(archive), str(store))


def test_each_directory_of_files_continues_and_no_other(tmp_path: Path, store: Path) -> None:
    archive = claimed(tmp_path / "archive", "path")
    for name in ("commitlog", "consumequeue/T/7", "index", "config"):
        (archive / name).mkdir(parents=True)
        (archive / name / "new").write_text(name)
    location = StoreLocation.of(store)
    joined = join_archive(location, archive, location.paths.commit_log)
    assert joined.root == str(store)
    for name in ("commitlog", "consumequeue/T/7", "index"):
        assert joined.fs.read(f"{store}/{name}/new", 0, 99) == name.encode()
    assert joined.fs.size(f"{store}/config/new") is None
    with pytest.raises(ConfigError, match="archive: directory not found"):
        join_archive(location, tmp_path / "none", location.paths.commit_log)
