import os
from collections.abc import Callable
from pathlib import Path

import pytest

from segmentlog.admin import archive_pull, archive_push, clone_group, commit_offsets, rebuild_queues, salvage
from segmentlog.query.delta_ledger import DeltaLedger
from segmentlog.query.file_parts import FileParts
from segmentlog.replication import Address, MessageStore, Replica, promote
from segmentlog.store import ConfigError, StoreConfig
from segmentlog.store.files.fs import absolute
from segmentlog.store.write.sink import prepare_store
from support.store_builder import StoreBuilder, messages

WRITERS: dict[str, Callable[[Path], object]] = {
    "salvage": lambda store: salvage(store, ""),
    "rebuild": lambda store: rebuild_queues(store, ""),
    "pull": lambda store: archive_pull(f"file://{store.with_name('archive')}", ""),
    "open": lambda _: MessageStore.open(""),
    "promote": lambda _: promote(""),
    "replicate": lambda _: Replica.open("", Address("localhost", 1)),
    "offsets": lambda _: commit_offsets("", "etl", {}),
    "clone": lambda _: clone_group("", "etl", "etl-2"),
    "sink": lambda _: prepare_store("", StoreConfig()),
    "files": lambda _: FileParts("", by_hour=False),
    "delta": lambda _: DeltaLedger(""),
}


def test_an_empty_path_is_not_the_working_directory(tmp_path: Path) -> None:
    assert absolute(".") == os.getcwd()
    assert absolute(tmp_path / "a" / ".." / "b") == str(tmp_path / "b")
    with pytest.raises(ConfigError, match="is empty"):
        absolute("")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that is only read, and its archive."""
    path = tmp_path_factory.mktemp("written") / "store"
    with StoreBuilder(path) as builder:
        builder.append(messages(1))
    archive_push(path, f"file://{path.with_name('archive')}")
    return path


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_refuses_an_empty_path(
    store: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="is empty"):
        WRITERS[name](store)
    assert os.listdir() == []
