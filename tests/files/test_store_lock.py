"""The lock of a store, between processes.

System calls of the lock: which process each of the two locks keeps out, and how it is named.
"""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segmentlog.store import StoreClosedError, StoreInUseError, UnreadableError, UnsafeFileError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.store_lock import (
    StoreLock,
    broker_of,
    held_lock,
    is_held_here,
    lock_ours,
    lock_record,
    momentary_lock,
    mutex,
    open_lock_file,
    record_owner,
    unlock,
    wait_for_owner,
)

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


def test_other_processes_are_kept_out_while_the_lock_is_held(tmp_path: Path) -> None:
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


def test_the_first_opener_locks_the_store(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with StoreLock(path) as lock:
        assert os.path.getsize(path) == 4  # reading it here would drop the lock
        lock.check()
        lock.ensure_held()
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


def test_the_content_of_a_lock_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"a broker wrote this")
    with StoreLock(str(tmp_path / "lock")):
        pass
    assert (tmp_path / "lock").read_bytes() == b"a broker wrote this"


def test_a_released_lock_reports_a_closed_store(tmp_path: Path) -> None:
    lock = StoreLock(str(tmp_path / "lock"))
    lock.release()
    lock.release()
    with pytest.raises(StoreClosedError, match="this store is not open in this process: it was closed"):
        lock.check()


def test_a_lock_released_during_its_check_reports_a_closed_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").write_bytes(b"lock")
    lock = StoreLock(str(tmp_path / "lock"))

    def lock_record(fd: int) -> bool:
        lock.release()
        return os.fstat(fd).st_size > 0  # of a descriptor that is closed

    monkeypatch.setattr("segmentlog.store.files.store_lock.lock_record", lock_record)
    with pytest.raises(StoreClosedError, match="it was closed"):
        lock.ensure_held()


def test_a_lock_file_that_was_taken_away_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with StoreLock(str(path)) as lock:
        path.unlink()
        with pytest.raises(StoreInUseError, match="the lock file was deleted"):
            lock.ensure_held()
        path.write_bytes(b"lock")
        with pytest.raises(StoreInUseError, match="the lock file was replaced"):
            lock.ensure_held()


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
        assert f"process {os.getpid()} has it open, and this process was forked from that one" in said
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


def test_a_momentary_lock_is_refused_while_another_process_holds_the_lock(tmp_path: Path) -> None:
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


def drop_record_lock(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def refused(path: str) -> bool:
    attempt = [sys.executable, "-c", TRY, path]
    return subprocess.run(attempt, check=False, stdin=subprocess.DEVNULL).returncode == 3


def test_a_record_lock_that_was_dropped_is_taken_again(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with StoreLock(path) as lock:
        drop_record_lock(path)
        assert LocalFileSystem().lock_owner(path) == 0  # held, as the other lock tells
        lock.ensure_held()
        assert LocalFileSystem().lock_owner(path) == os.getpid()
        assert refused(path)


@pytest.mark.parametrize("signed", [True, False])
def test_a_broker_that_came_and_went_is_noticed(tmp_path: Path, signed: bool) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    with StoreLock(str(path)) as lock:
        if signed:
            lock.sign()
        drop_record_lock(str(path))
        time.sleep(0.02)  # the file's time is as fine as the kernel's clock tick
        with subprocess.Popen(
            [sys.executable, "-c", TRY.replace("print", "file.write(b'lock'); file.flush(); print"), str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as broker:  # fmt: skip
            assert broker.stdout is not None
            assert broker.stdout.readline() == "held\n"
            with pytest.raises(StoreInUseError, match=f"lost the lock of the store: process {broker.pid} took it"):
                lock.ensure_held()
            broker.communicate()
        with pytest.raises(StoreInUseError, match="a broker opened the store in the meantime"):
            lock.ensure_held()


def test_a_lock_file_that_was_only_touched_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with StoreLock(str(path)) as lock:
        lock.sign()
        os.utime(path, (1, 1))
        lock.ensure_held()
        lock.ensure_held()


def test_our_own_lock_keeps_our_processes_out_without_the_record_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    attempt = "import sys; from segmentlog.store.files.store_lock import StoreLock; StoreLock(sys.argv[1])"
    with StoreLock(path):
        drop_record_lock(path)
        done = subprocess.run([sys.executable, "-c", attempt, path], check=False, capture_output=True, text=True)
        assert "StoreInUseError" in done.stderr
    StoreLock(path).release()


def test_a_broker_is_told_from_one_of_ours(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert broker_of(path) is None
    assert broker_of(f"{__file__}/lock") is None
    hold = "import sys; from segmentlog.store.files.store_lock import StoreLock; lock = StoreLock(sys.argv[1])"
    hold += "; print('held', flush=True); sys.stdin.read()"
    for program, is_broker in ((hold, False), (TRY, True), (hold, False)):
        with subprocess.Popen(
            [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            assert broker_of(path) == (other.pid if is_broker else None)  # one of ours need not have signed it
            other.communicate()
        assert broker_of(path) is None
    with StoreLock(path):
        assert broker_of(path) is None
        assert is_held_here(path)
        assert refused(path)
    assert not is_held_here(path)


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "directory", "device"])
def test_only_a_plain_file_can_be_a_lock_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    (tmp_path / "target").write_bytes(b"mine")
    match kind:
        case "link":
            path.symlink_to(tmp_path / "target")
        case "dangling":
            path.symlink_to(tmp_path / "nothing")
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to("/dev/null")
    asks = [
        lambda: StoreLock(str(path)),
        lambda: broker_of(str(path)),
        lambda: momentary_lock(str(path)).__enter__(),
        lambda: mutex(str(path)).__enter__(),
    ]
    before = len(os.listdir("/proc/self/fd"))
    for ask in asks:
        with pytest.raises(UnsafeFileError, match="wants a plain file") as raised:
            ask()
        assert raised.value.path == str(path)
        assert raised.value.fix
    assert len(os.listdir("/proc/self/fd")) == before
    assert (tmp_path / "target").read_bytes() == b"mine"
    assert not (tmp_path / "nothing").exists()


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


@pytest.mark.parametrize("kind", ["store", "moment", "mutex"])
def test_a_forked_child_keeps_nothing_that_its_dead_parent_held(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, path, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as owner:  # fmt: skip
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        owner.communicate()
        try:
            if kind == "mutex":
                with open(path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                StoreLock(path).release()
        finally:
            os.killpg(owner.pid, 9)


OTHER = """
import sys
from segmentlog.store.files import store_lock
file = store_lock.open_lock_file(sys.argv[1], make=False)
for line in sys.stdin:
    print(getattr(store_lock, line.strip())(file.fd), flush=True)
"""


class Other:
    """Another process that has the file open."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

    def does(self, call: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(call + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def other(path: Path) -> Iterator[Other]:
    command = [sys.executable, "-c", OTHER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Other(process)
        process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "lock"
    found.touch()
    return found


def test_a_lock_file_is_made_only_if_it_may_be(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_lock_file(str(tmp_path / "lock"), make=False)
    assert list(tmp_path.iterdir()) == []
    open_lock_file(str(tmp_path / "lock"), make=True).close()
    assert (tmp_path / "lock").read_bytes() == b""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write any file")
def test_a_read_only_lock_file_is_refused_with_unreadable_error(path: Path) -> None:
    path.chmod(0o400)
    with pytest.raises(UnreadableError, match="may not write"):
        open_lock_file(str(path), make=True)


def test_a_descriptor_is_not_inherited(path: Path) -> None:
    file = open_lock_file(str(path), make=False)
    assert not os.get_inheritable(file.fd)
    file.close()


@pytest.mark.parametrize("call", ["lock_record", "lock_ours"])
def test_another_process_is_kept_out_until_it_is_released(path: Path, call: str) -> None:
    take = {"lock_record": lock_record, "lock_ours": lock_ours}[call]
    file = open_lock_file(str(path), make=False)
    with other(path) as process:
        assert take(file.fd)
        assert process.does(call) == "False"
        unlock(file)
        assert process.does(call) == "True"
        again = open_lock_file(str(path), make=False)
        assert not take(again.fd)
        again.close()


def test_the_two_locks_are_independent(path: Path) -> None:
    file = open_lock_file(str(path), make=False)
    with other(path) as process:
        assert process.does("lock_ours") == "True"
        assert lock_record(file.fd)
        assert not lock_ours(file.fd)
        assert process.does("lock_record") == "False"
    unlock(file)


def test_within_a_process_only_the_second_lock_tells_two_openings_apart(path: Path) -> None:
    one, two = open_lock_file(str(path), make=False), open_lock_file(str(path), make=False)
    assert lock_record(one.fd)
    assert lock_record(two.fd)
    assert lock_ours(one.fd)
    assert not lock_ours(two.fd)
    unlock(two)
    unlock(one)


def test_the_owner_of_the_record_lock_is_named(path: Path) -> None:
    file = open_lock_file(str(path), make=False)
    with other(path) as process:
        assert record_owner(file.fd) is None
        assert process.does("lock_record") == "True"
        assert record_owner(file.fd) == process.pid
        assert wait_for_owner(file.fd) == process.pid
        assert process.does("record_owner") == "None"  # its own lock keeps it from nothing
    file.close()


def test_a_wait_for_an_owner_without_a_record_lock_ends(path: Path) -> None:
    file = open_lock_file(str(path), make=False)
    with other(path) as process:
        assert process.does("lock_ours") == "True"
        assert wait_for_owner(file.fd) is None
    file.close()
