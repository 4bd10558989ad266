import os
from collections.abc import Callable
from pathlib import Path

import pytest

from segmentlog.store import ConfigError, NotAStoreError, SegmentLogError, UnsafeFileError, UnsupportedStoreError
from segmentlog.store.directory.layout import (
    StoreLocation,
    check_is_store,
    is_directory,
    list_queue_ids,
    list_queues,
    log_directories,
    look_at_queues,
    place_of,
)
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.maintenance import verify

FS = LocalFileSystem()


def with_queues(path: Path, *queues: str) -> Path:
    for queue in queues:
        (path / "consumequeue" / queue).mkdir(parents=True)
    return path


def check(path: Path, commit_logs: tuple[str, ...] = ()) -> None:
    location = StoreLocation.of(path)
    check_is_store(location, {entry.name: entry for entry in FS.list_dir(str(path))}, commit_logs)


def test_queues_are_listed_by_topic(tmp_path: Path) -> None:
    assert list_queues(FS, str(tmp_path)) == {}
    with_queues(tmp_path, "empty")
    assert list_queues(FS, str(tmp_path)) == {}
    with_queues(tmp_path, "orders/0", "orders/11", "orders/2", "refunds/7")
    assert list_queues(FS, str(tmp_path)) == {"orders": {0, 2, 11}, "refunds": {7}}
    assert list_queue_ids(FS, str(tmp_path / "consumequeue" / "orders")) == ({0, 2, 11}, [])
    assert list_queue_ids(FS, str(tmp_path / "none")) == (set(), [])


def test_names_that_no_broker_writes_are_ignored_or_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with_queues(tmp_path, "orders/0", "orders/x", "orders/-1", "two words\n/0")
    topic = tmp_path / "consumequeue" / "orders"
    for name in ("../file", "5", "notes"):
        (topic / name).write_bytes(b"")
    os.mkfifo(topic / "6")
    (tmp_path / "consumequeue_ext" / "orders").mkdir(parents=True)
    assert list_queues(FS, str(tmp_path)) == {"orders": {0}}
    assert look_at_queues(FS, str(tmp_path)) == ({"orders": {0}}, [str(topic / "5"), str(topic / "6")], False)
    assert "no topic can have this name" in caplog.text
    assert "enableConsumeQueueExt" in caplog.text


@pytest.mark.parametrize("link", ["t", "orders/1"])
def test_a_link_among_the_queues_is_refused(tmp_path: Path, link: str) -> None:
    with_queues(tmp_path, "orders/0")
    (tmp_path / "consumequeue" / link).symlink_to(tmp_path)
    with pytest.raises(UnsafeFileError, match="symbolic link") as caught:
        list_queues(FS, str(tmp_path))
    assert caught.value.path == str(tmp_path / "consumequeue" / link)


def test_one_part_or_a_commit_log_elsewhere_makes_a_store(tmp_path: Path) -> None:
    for part in ("commitlog", "consumequeue", "checkpoint"):
        (tmp_path / part / part).mkdir(parents=True)
        check(tmp_path / part)
    (tmp_path / "empty").mkdir()
    check(tmp_path / "empty", ("/other/commitlog",))


def nested(path: Path) -> None:
    (path / "inner" / "commitlog").mkdir(parents=True)
    (path / "inner" / "commitlog" / f"{0:020d}").write_bytes(b"")


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda path: (path / "other").mkdir(), NotAStoreError, "holds no RocketMQ store.*storePathRootDir"),
        (nested, NotAStoreError, "Did you mean .*inner"),
        (lambda path: path.rmdir(), NotAStoreError, "there is no such directory"),
    ],
    ids=["other", "nested", "absent"],
)
def test_a_directory_that_is_not_a_store_is_refused_with_the_reason(
    tmp_path: Path, make: Callable[[Path], None], error: type[SegmentLogError], text: str
) -> None:
    path = tmp_path / "store"
    path.mkdir()
    make(path)
    with pytest.raises(error, match=f"(?s){text}"):
        check(path)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("store/commitlog", "this directory holds no .*This is a part of the store .*/store: pass that"),
        ("store/consumequeue/orders/0", "part of the store .*/store: pass"),
        ("store/checkpoint", "this is a file.*part of the store .*/store: pass"),
        ("strore", "there is no such directory.*Did you mean .*/store\\?"),
        ("note.txt", "this is a file.*storePathRootDir"),
        ("empty", "holds no RocketMQ store [^.]*\\. Pass the broker's storePathRootDir"),
    ],
)
def test_a_path_beside_a_store_leads_to_it(tmp_path: Path, asked: str, text: str) -> None:
    for directory in ("commitlog", "consumequeue/orders/0"):
        (tmp_path / "store" / directory).mkdir(parents=True)
    (tmp_path / "store" / "checkpoint").touch()
    (tmp_path / "note.txt").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAStoreError, match=f"(?s){text}"):
        check(tmp_path / asked)


def test_a_path_is_made_absolute_and_a_file_is_not_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = StoreLocation.of(Path("a") / ".." / "s")
    assert found.root == str(tmp_path / "s")
    assert isinstance(found.fs, LocalFileSystem)
    assert found.beside("more/") == str(tmp_path / "more")
    assert found.paths.lock == os.path.join(found.root, "lock")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    found_there = [is_directory(FS, str(tmp_path / name)) for name in ("", "link", "file", "none")]
    assert found_there == [True, True, False, False]
    assert is_directory(Elsewhere(), "/elsewhere/s")
    assert not is_directory(Elsewhere(), "/")


def test_places_are_absolute_paths_or_urls_of_object_stores() -> None:
    roots = {
        "/data/store": "/data/store",
        "file:/data/a%20store": "/data/a store",
        "file:///data/store/": "/data/store",
    }
    roots |= {"/data/a%20b": "/data/a%20b", "~/s": os.path.expanduser("~/s"), "broker:1": os.path.abspath("broker:1")}
    roots |= {"s3a://bucket/store/": "s3a://bucket/store", "hdfs://x/y": "hdfs://x/y", "s3://": "s3://"}
    assert {url: place_of(url) for url in roots} == roots
    for url in ("ftp://x/y", "abfss:/x"):
        with pytest.raises(ConfigError, match=f"`{url}` is neither a directory nor the URL of an object store"):
            place_of(url)


def test_tools_for_directories_name_the_way_from_a_url() -> None:
    with pytest.raises(ConfigError, match="archive pull") as raised:
        StoreLocation.of("s3://bucket/a")
    assert raised.value.path == "s3://bucket/a"
    with pytest.raises(NotAStoreError, match="archive verify"):
        verify("s3://bucket/a")


class Elsewhere(LocalFileSystem):
    """A file system that knows one directory, which this machine does not have."""

    def stamp(self, path: str) -> tuple[int, int] | None:
        return (1, 1) if path.rstrip("/") == "/elsewhere/s" else None


def test_the_directories_of_a_log(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert log_directories(root, ["commitlog"]) == (f"{root}/commitlog",)
    assert log_directories(root, ["dledger-n0", "index"]) == (f"{root}/dledger-n0/data",)
    assert log_directories(root, ["commitlog", "dledger-n0"]) == (f"{root}/commitlog", f"{root}/dledger-n0/data")
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    check(tmp_path)
    with pytest.raises(NotAStoreError, match=r"part of the store .*: pass that"):
        check(tmp_path / "dledger-n0" / "data")
    with pytest.raises(UnsupportedStoreError, match=r"logs of 2 brokers .* here: dledger-n0, dledger-n1"):
        log_directories(root, ["dledger-n1", "dledger-n0"])


def test_named_directories_have_to_be_those_of_the_group(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    check(tmp_path, (f"{tmp_path}/dledger-n0/data",))
    with pytest.raises(UnsupportedStoreError, match="storePathDLedgerCommitLog"):
        check(tmp_path, ("/elsewhere",))
