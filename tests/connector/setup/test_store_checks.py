"""Checks of the doctor on a store: opened, measured, with an owner or without one."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmentlog.connector.setup import store_checks
from segmentlog.connector.setup.checks import Status

# Holds byte 0 of a file as a broker does, says so, and lives until its standard input ends.
HOLD = """\
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[int]:
    """Lock the store at ``tmp_path`` from another process; yield its id."""
    (tmp_path / "lock").touch()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_a_path_that_is_no_store_fails_with_the_reason(tmp_path: Path) -> None:
    found = store_checks.check_store(str(tmp_path / "nothing"))
    assert found.status is Status.FAIL
    assert str(tmp_path / "nothing") in found.found
    assert found.fix


@pytest.mark.parametrize("abort", [False, True])
def test_a_process_on_the_store_is_named(owner: int, abort: bool, tmp_path: Path) -> None:
    if abort:
        (tmp_path / "abort").touch()
    found = store_checks.check_owner(str(tmp_path))
    assert found.status is Status.OK
    assert found.found == f"process {owner} has it open; reading beside it is safe"


def test_nobody_on_the_store(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    assert store_checks.check_owner(str(tmp_path)).status is Status.OK
    (tmp_path / "abort").touch()
    found = store_checks.check_owner(str(tmp_path))
    assert (found.status, found.found) == (Status.WARN, "abort file, but no process: it was killed")


def test_asking_does_not_drop_a_lock_of_this_process(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("wb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
        for _ in range(2):
            assert store_checks.check_owner(str(tmp_path)).found.startswith(f"process {os.getpid()} has it open")


def test_a_lock_that_is_no_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    assert store_checks.check_owner(str(tmp_path)).status is Status.WARN


def test_size_counts_what_files_say_and_what_they_take(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    with (folder / ("0" * 20)).open("wb") as segment:
        segment.truncate(1 << 30)
        segment.write(b"x" * 4096)
    size_bytes, disk_bytes = store_checks._tree_bytes(str(tmp_path))
    assert size_bytes == 1 << 30
    assert 4096 <= disk_bytes < 1 << 20


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_readable(size_bytes: int, text: str) -> None:
    assert store_checks._human(size_bytes) == text
