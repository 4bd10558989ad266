import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import segmentlog
from segmentlog.api import kept as kept_module
from segmentlog.api.kept import KeptFinder
from segmentlog.store import ConfigError, MessageStore, Outgoing, Snapshot, StoreConfig

if TYPE_CHECKING:
    import pyarrow as pa


def put(store: MessageStore, number: int) -> None:
    store.append(Outgoing(topic="T", queue_id=0, body=b"%d" % number, keys=f"key-{number}", uniq_key=f"U{number}"))
    store.wait_dispatched()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "written"
    with MessageStore.open(path, StoreConfig(segment_bytes=1 << 16)) as store:
        for number in range(10):
            put(store, number)
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    real = Snapshot.open

    def counted(path: str, **arguments: object) -> Snapshot:
        found.append(path)
        return real(path, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Snapshot, "open", counted)
    return found


def test_a_store_that_does_not_change_is_opened_once(written: Path, opened: list[str]) -> None:
    store = segmentlog.open(written)
    for number in range(10):
        message = store.get(unique_key=f"U{number}")
        assert message is not None
        assert message.body == b"%d" % number
        assert store.find("T", keys=f"key-{number}").to_arrow()["body"].to_pylist() == [b"%d" % number]
    assert len(opened) == 1, "to check the path; all look-ups take that over"


def test_a_store_that_grows_is_opened_once_for_all_look_ups_and_once_more_for_a_new_file(
    written: Path, opened: list[str]
) -> None:
    found = segmentlog.open(written)
    with MessageStore.open(written, StoreConfig(segment_bytes=1 << 16)) as store:
        put(store, 10)
        assert found.get(unique_key="U10") is not None
        opened.clear()
        for number in range(11, 31):
            assert found.find("T", unique_keys=[f"U{number}", "U3"]).count() == 1
            put(store, number)
            assert found.find("T", unique_keys=[f"U{number}", "U3"]).count() == 2
            assert found.get(unique_key=f"U{number}", topic="T") is not None
        assert not opened
        for _ in range(2):
            store.append(Outgoing(topic="Other", queue_id=0, body=bytes(1 << 15), uniq_key="large"))
        store.wait_dispatched()
        assert found.find("Other", unique_keys="large").count() == 2
        assert len(opened) == 1


def test_a_store_that_another_one_replaced(written: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with MessageStore.open(other, StoreConfig(segment_bytes=1 << 16)) as store:
        for number in range(10, 20):
            put(store, number)
    found = segmentlog.open(written)
    assert found.get(unique_key="U5") is not None
    shutil.rmtree(written)
    shutil.move(other, written)
    assert found.get(unique_key="U5") is None
    assert found.get(unique_key="U15") is not None


def test_a_result_can_be_read_when_the_finder_has_moved_on(written: Path) -> None:
    found = segmentlog.open(written)
    early = found.find("T", keys=["key-3", "key-4"])
    with MessageStore.open(written, StoreConfig(segment_bytes=1 << 16)) as store:
        put(store, 10)
    assert found.find("T", keys="key-10").count() == 1
    tables: list[pa.Table] = []
    thread = threading.Thread(target=lambda: tables.append(early.to_arrow()))
    thread.start()
    thread.join()
    assert tables[0]["body"].to_pylist() == early.to_arrow()["body"].to_pylist() == [b"3", b"4"]


def test_a_thread_that_finds_it_borrowed_has_one_of_its_own(written: Path) -> None:
    finders = KeptFinder(lambda: Snapshot.open(written))
    with finders.borrowed() as (snapshot, _), finders.borrowed() as (other, finder):
        assert other is not snapshot
        assert len(finder.by_keys(["T"], ["key-1"])) == 1
    with pytest.raises(ConfigError), finders.borrowed() as (failed, _):
        raise ConfigError("something")
    with finders.borrowed() as (other, _):
        assert other is not failed


def test_an_old_look_is_repeated(written: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> None:
    """A change that left no trace in the times of directories shows when the store is listed again."""
    finders = KeptFinder(lambda: Snapshot.open(written))
    monkeypatch.setattr(kept_module, "_TRUSTED_S", 0)
    os.utime(written / "commitlog", (0, 0))
    with finders.borrowed() as (snapshot, _):
        assert snapshot.look().log is snapshot.log
    with finders.borrowed() as (again, finder):
        assert again.log is not snapshot.log
        assert len(finder.by_keys(["T"], ["key-1"])) == 1
    assert len(opened) == 1
