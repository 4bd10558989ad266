import fcntl
import os
import time
from pathlib import Path

import pytest

from segmentlog.store import StoreClosedError, StoreInUseError, UnreadableError, UnsafeFileError
from segmentlog.store.files.store_lock import (
    StoreLock,
    broker_of,
    held_lock,
    momentary_lock,
    mutex,
    open_lock_file,
)
from support.lock_holders import BROKER, OURS, holding, refused

ORPHAN = """
import os, sys, time
from segmentlog.store.files.store_lock import StoreLock, momentary_lock, mutex
path, kind = sys.argv[1:]
held = StoreLock(path) if kind == "store" else {"moment": momentary_lock, "mutex": mutex}[kind](path)
if kind != "store":
    held.__enter__()
if os.fork() == 0:
    os.close(1)
    time.sleep(60)
print("held", flush=True)
sys.stdin.read()
os._exit(0)
"""


def drop_record_lock(path: Path) -> None:
    os.close(os.open(path, os.O_RDONLY))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A lock file as a broker leaves it."""
    (tmp_path / "lock").write_bytes(b"lock")
    return tmp_path / "lock"


def test_other_processes_are_kept_out_while_the_lock_is_held(path: Path) -> None:
    with held_lock(str(path)):
        assert refused(path)
    assert not refused(path)
    assert path.read_bytes() == b"lock"
    in_use = pytest.raises(StoreInUseError, match="Stop the broker")
    with holding(BROKER, path), in_use as raised, held_lock(str(path)):
        pass
    assert raised.value.path == str(path.parent)
    with holding(OURS, path) as ours, pytest.raises(StoreInUseError, match=f"process {ours} has this store open"):
        StoreLock(str(path))
    path.unlink()
    with held_lock(str(path)):
        assert not path.exists(), "a store without a lock file gets none"


def test_the_first_opener_locks_the_store_also_under_a_link_to_its_file(tmp_path: Path) -> None:
    path, other = tmp_path / "lock", tmp_path / "other" / "lock"
    with StoreLock(str(path)) as lock:
        assert path.stat().st_size == 4  # reading it here would drop the lock
        lock.check()
        lock.ensure_held()
        other.parent.mkdir()
        os.link(path, other)
        for each in (path, path, other):
            with pytest.raises(StoreInUseError, match=r"this process has this store open .*Close it there first"):
                StoreLock(str(each))
        assert refused(path)
    StoreLock(str(path)).release()
    path.write_bytes(b"a broker wrote this")
    StoreLock(str(path)).release()
    assert path.read_bytes() == b"a broker wrote this"


def test_a_released_lock_reports_a_closed_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = StoreLock(str(path))
    lock.release()
    lock.release()
    with pytest.raises(StoreClosedError, match="this store is not open in this process: it was closed"):
        lock.check()
    lock = StoreLock(str(path))

    def lock_record(fd: int) -> bool:
        lock.release()
        return os.fstat(fd).st_size > 0  # of a descriptor that is closed

    monkeypatch.setattr("segmentlog.store.files.store_lock.lock_record", lock_record)
    with pytest.raises(StoreClosedError, match="it was closed"):
        lock.ensure_held()


def test_a_lock_file_that_was_taken_away_is_noticed(path: Path) -> None:
    with StoreLock(str(path)) as lock:
        path.unlink()
        with pytest.raises(StoreInUseError, match="the lock file was deleted"):
            lock.ensure_held()
        path.write_bytes(b"lock")
        with pytest.raises(StoreInUseError, match="the lock file was replaced"):
            lock.ensure_held()


def test_a_lock_for_a_moment_is_taken_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    with momentary_lock(str(path)) as is_held:
        assert is_held
        assert refused(path)
    assert path.read_bytes() == b""  # whose it is, its owner writes
    with StoreLock(str(path)):
        with momentary_lock(str(path)) as is_held:
            assert is_held
        assert refused(path), "it takes nothing from a store of this process"
    with holding(OURS, path), momentary_lock(str(path)) as is_held:
        assert not is_held
    with momentary_lock(str(path)) as is_held:
        assert is_held

    def refuse(path: str, *rest: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("segmentlog.store.files.store_lock.os.open", refuse)
    with momentary_lock(str(path)) as is_held:
        assert not is_held


@pytest.mark.parametrize("signed", [True, False])
def test_a_broker_that_came_and_went_is_noticed(path: Path, signed: bool) -> None:
    with StoreLock(str(path)) as lock:
        if signed:
            lock.sign()
        drop_record_lock(path)
        time.sleep(0.02)  # the file's time is as fine as the kernel's clock tick
        taken = pytest.raises(StoreInUseError, match="lost the lock of the store: process")
        with holding(BROKER, path) as broker, taken as raised:
            lock.ensure_held()
        assert f"process {broker} took it" in str(raised.value)
        with pytest.raises(StoreInUseError, match="a broker opened the store in the meantime"):
            lock.ensure_held()


def test_a_lock_file_that_was_only_touched_is_kept(path: Path) -> None:
    with StoreLock(str(path)) as lock:
        lock.sign()
        os.utime(path, (1, 1))
        lock.ensure_held()
        lock.ensure_held()


def test_a_broker_is_told_from_one_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert broker_of(str(path)) is broker_of(f"{__file__}/lock") is None
    path.touch()
    for program in (OURS, BROKER, OURS):
        with holding(program, path) as other:
            assert broker_of(str(path)) == (other if program == BROKER else None)  # one of ours need not have signed it
        assert broker_of(str(path)) is None
    with StoreLock(str(path)):
        assert broker_of(str(path)) is None
        assert refused(path)


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "directory", "device"])
def test_only_a_plain_file_can_be_a_lock_file(tmp_path: Path, kind: str) -> None:
    path, name = tmp_path / "lock", str(tmp_path / "lock")
    (tmp_path / "target").write_bytes(b"mine")
    links = {"link": tmp_path / "target", "dangling": tmp_path / "nothing", "device": "/dev/null"}
    if kind in links:
        path.symlink_to(links[kind])
    else:
        os.mkfifo(path) if kind == "fifo" else path.mkdir()
    asks = (StoreLock, broker_of, lambda name: momentary_lock(name).__enter__(), lambda name: mutex(name).__enter__())
    before = len(os.listdir("/proc/self/fd"))
    for ask in asks:
        with pytest.raises(UnsafeFileError, match="wants a plain file") as raised:
            ask(name)
        assert raised.value.path == name
        assert raised.value.fix
    assert len(os.listdir("/proc/self/fd")) == before
    assert (tmp_path / "target").read_bytes() == b"mine"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("kind", ["store", "moment", "mutex"])
def test_a_forked_child_keeps_nothing_that_its_dead_parent_held(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    with holding(ORPHAN, path, kind, leads=True) as owner:
        pass
    try:
        if kind == "mutex":
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            StoreLock(str(path)).release()
    finally:
        os.killpg(owner, 9)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write any file")
def test_a_read_only_lock_file_is_refused_with_unreadable_error(path: Path) -> None:
    path.chmod(0o400)
    with pytest.raises(UnreadableError, match="may not write"):
        open_lock_file(str(path), make=True)
