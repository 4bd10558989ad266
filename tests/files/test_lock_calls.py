"""System calls of the lock: which process each of the two locks keeps out, and how it is named."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segmentlog.store import UnreadableError, UnsafeFileError
from segmentlog.store.files.lock_calls import (
    lock_ours,
    lock_record,
    open_lock_file,
    record_owner,
    unlock,
    wait_for_owner,
)

OTHER = """
import sys
from segmentlog.store.files import lock_calls
file = lock_calls.open_lock_file(sys.argv[1], make=False)
for line in sys.stdin:
    print(getattr(lock_calls, line.strip())(file.fd), flush=True)
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


def test_the_bytes_of_a_lock_file_stay(path: Path) -> None:
    path.write_bytes(b"lock")
    file = open_lock_file(str(path), make=True)
    assert lock_record(file.fd)
    unlock(file)
    assert path.read_bytes() == b"lock"


@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo", "directory"])
def test_what_is_no_plain_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "lock"
    match kind:
        case "link":
            (tmp_path / "real").touch()
            place.symlink_to("real")
        case "dangling link":
            place.symlink_to("nowhere")
        case "fifo":
            os.mkfifo(place)
        case _:
            place.mkdir()
    open_before = os.listdir("/proc/self/fd")
    with pytest.raises(UnsafeFileError, match="wants a plain file") as raised:
        open_lock_file(str(place), make=True)
    assert raised.value.path == str(place)
    assert raised.value.fix
    assert not (tmp_path / "nowhere").exists()
    assert len(os.listdir("/proc/self/fd")) == len(open_before)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write any file")
def test_a_file_that_may_not_be_written_says_so(path: Path) -> None:
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


def test_the_two_locks_do_not_get_in_each_others_way(path: Path) -> None:
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
