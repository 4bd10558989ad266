import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from segmentlog.store import StoreIOError
from segmentlog.store.files.lock_owner import lock_owner
from segmentlog.store.files.store_lock import StoreLock

BROKER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""
OURS = """
import sys
from segmentlog.store.files.store_lock import StoreLock
lock = StoreLock(sys.argv[1])
if len(sys.argv) > 2:
    open(sys.argv[1]).close()
print("held", flush=True)
sys.stdin.read()
"""
TAKE = """
import fcntl, sys
fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
"""


@pytest.mark.parametrize(
    ("program", "arguments", "is_named"), [(BROKER, [], True), (OURS, [], True), (OURS, ["lost"], False)]
)
def test_the_owner_of_a_lock_is_seen(tmp_path: Path, program: str, arguments: list[str], is_named: bool) -> None:
    path = tmp_path / "lock"
    assert lock_owner(str(path)) is None
    path.write_bytes(b"lock")
    assert lock_owner(str(path)) is None
    command, pipe = [sys.executable, "-c", program, str(path), *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        assert lock_owner(str(path)) == (owner.pid if is_named else 0)
        owner.communicate()
    assert lock_owner(str(path)) is None


def test_asking_releases_no_lock_of_this_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with StoreLock(str(path)):
        assert [lock_owner(str(path)) for _ in range(2)] == [os.getpid()] * 2
        assert subprocess.run([sys.executable, "-c", TAKE, path], capture_output=True, check=False).returncode
    assert lock_owner(str(path)) is None


def test_a_lock_that_another_thread_takes_meanwhile_is_kept(tmp_path: Path) -> None:
    path, stopped = str(tmp_path / "lock"), threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            lock_owner(path)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for each in threads:
        each.start()
    try:
        for _ in range(5):
            with StoreLock(path):
                assert subprocess.run([sys.executable, "-c", TAKE, path], capture_output=True, check=False).returncode
    finally:
        stopped.set()
        for each in threads:
            each.join()


def test_a_forked_child_sees_its_parent(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with StoreLock(path):
        child = os.fork()
        if child == 0:
            os._exit(lock_owner(path) != os.getppid())
        assert os.waitpid(child, 0)[1] == 0
        assert lock_owner(path) == os.getpid()
        assert subprocess.run([sys.executable, "-c", TAKE, path], capture_output=True, check=False).returncode


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "socket"])
def test_what_is_no_lock_file_has_no_owner(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    if kind == "link":
        path.symlink_to(__file__)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    assert lock_owner(str(path)) is None


def test_no_descriptor_left_is_an_error_and_not_a_missing_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").write_bytes(b"lock")

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(StoreIOError, match="Too many") as raised:
        lock_owner(str(tmp_path / "lock"))
    assert raised.value.path == str(tmp_path / "lock")
    assert "ulimit -n" in str(raised.value)
