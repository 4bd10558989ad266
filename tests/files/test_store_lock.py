"""The lock of a store, between processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from segmentlog.store import StoreInUseError
from segmentlog.store.files.store_lock import held_lock

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
