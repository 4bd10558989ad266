"""The lock of a store, between processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from segmentlog.store import StoreClosedError, StoreInUseError, UnsafeFileError
from segmentlog.store.files.store_lock import StoreLock, held_lock, momentary_lock

TRY = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        sys.exit(3)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_others_are_kept_out_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    attempt = [sys.executable, "-c", TRY, str(path)]
    with held_lock(str(path)):
        assert subprocess.run(attempt, check=False, stdin=subprocess.DEVNULL).returncode == 3
    assert subprocess.run(attempt, check=False, stdin=subprocess.DEVNULL).returncode == 0
    assert path.read_bytes() == b"lock"


def test_a_lock_that_another_process_holds_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    with subprocess.Popen(
        [sys.executable, "-c", TRY, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(StoreInUseError, match="Stop the broker") as raised, held_lock(str(path)):
            pass
        owner.communicate()
    assert raised.value.path == str(tmp_path)


def test_a_store_without_a_lock_file_gets_none(tmp_path: Path) -> None:
    with held_lock(str(tmp_path / "lock")):
        pass
    assert not list(tmp_path.iterdir())


def test_a_store_is_locked_by_the_first_who_comes(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with StoreLock(path) as lock:
        assert os.path.getsize(path) == 4  # reading it here would drop the lock
        lock.check()
        lock.keep()
        for _ in range(2):
            with pytest.raises(StoreInUseError, match=r"this process has this store open .*Close it there first"):
                StoreLock(path)
        attempt = [sys.executable, "-c", TRY, path]
        assert subprocess.run(attempt, check=False, stdin=subprocess.DEVNULL).returncode == 3
    with StoreLock(path):
        pass


def test_a_link_to_the_same_file_is_the_same_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with StoreLock(str(path)):
        (tmp_path / "other").mkdir()
        os.link(path, tmp_path / "other" / "lock")
        with pytest.raises(StoreInUseError, match="this process has this store open"):
            StoreLock(str(tmp_path / "other" / "lock"))
        attempt = [sys.executable, "-c", TRY, str(path)]
        assert subprocess.run(attempt, check=False, stdin=subprocess.DEVNULL).returncode == 3


def test_a_symbolic_link_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(UnsafeFileError, match="symbolic"):
        StoreLock(str(tmp_path / "lock"))
    assert (tmp_path / "target").read_bytes() == b"mine"


def test_what_a_lock_file_holds_stays(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"a broker wrote this")
    with StoreLock(str(tmp_path / "lock")):
        pass
    assert (tmp_path / "lock").read_bytes() == b"a broker wrote this"


def test_a_released_lock_says_that_it_is_none(tmp_path: Path) -> None:
    lock = StoreLock(str(tmp_path / "lock"))
    lock.release()
    lock.release()
    with pytest.raises(StoreClosedError, match="this store is not open here: it was closed"):
        lock.check()


def test_a_lock_file_that_was_taken_away_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with StoreLock(str(path)) as lock:
        path.unlink()
        with pytest.raises(StoreInUseError, match="the file lock was deleted"):
            lock.keep()
        path.write_bytes(b"lock")
        with pytest.raises(StoreInUseError, match="the file lock was replaced"):
            lock.keep()


def test_a_forked_child_has_no_lock(tmp_path: Path) -> None:
    hearing, saying = os.pipe()
    with StoreLock(str(tmp_path / "lock")) as lock:
        child = os.fork()
        if child == 0:
            try:
                lock.check()
            except StoreClosedError as error:
                os.write(saying, str(error).encode())
            lock.release()  # which takes nothing from the parent
            os._exit(0)
        os.waitpid(child, 0)
        said = os.read(hearing, 4096).decode()
        assert f"process {os.getpid()} has it open, which this one was forked from" in said
        attempt = [sys.executable, "-c", TRY, str(tmp_path / "lock")]
        assert subprocess.run(attempt, check=False, stdin=subprocess.DEVNULL).returncode == 3
    os.close(hearing)
    os.close(saying)


def test_a_lock_for_a_moment_is_taken_and_given_back(tmp_path: Path) -> None:
    attempt = [sys.executable, "-c", TRY, str(tmp_path / "lock")]
    with momentary_lock(str(tmp_path / "lock")) as is_held:
        assert is_held
        assert subprocess.run(attempt, check=False, stdin=subprocess.DEVNULL).returncode == 3
    assert (tmp_path / "lock").read_bytes() == b""  # whose it is, its owner writes
    StoreLock(str(tmp_path / "lock")).release()


def test_a_lock_for_a_moment_takes_nothing_from_a_store_of_this_process(tmp_path: Path) -> None:
    attempt = [sys.executable, "-c", TRY, str(tmp_path / "lock")]
    with StoreLock(str(tmp_path / "lock")):
        with momentary_lock(str(tmp_path / "lock")) as is_held:
            assert is_held
        assert subprocess.run(attempt, check=False, stdin=subprocess.DEVNULL).returncode == 3


def test_a_lock_for_a_moment_is_not_had_from_others(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    hold = "import sys; from segmentlog.store.files.store_lock import StoreLock; lock = StoreLock(sys.argv[1])"
    hold += "; print(1, flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", hold, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other:
        assert other.stdout is not None
        assert other.stdin is not None
        other.stdout.readline()
        with momentary_lock(path) as is_held:
            assert not is_held
        other.stdin.close()
    with momentary_lock(path) as is_held:
        assert is_held


def test_a_lock_that_may_not_be_asked_for_is_not_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *rest: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("segmentlog.store.files.store_lock.os.open", refuse)
    with momentary_lock(str(tmp_path / "lock")) as is_held:
        assert not is_held
