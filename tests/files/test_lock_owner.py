import os
import threading
from pathlib import Path

import pytest

from segmentlog.store.files.lock_owner import lock_owner
from segmentlog.store.files.store_lock import StoreLock
from support.lock_holders import BROKER, OURS, holding, refused

LOST = """
import sys
from segmentlog.store.files.store_lock import StoreLock
lock = StoreLock(sys.argv[1])
open(sys.argv[1]).close()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("program", "is_named"), [(BROKER, True), (OURS, True), (LOST, False)])
def test_the_owner_of_a_lock_is_seen(tmp_path: Path, program: str, is_named: bool) -> None:
    path = tmp_path / "lock"
    assert lock_owner(str(path)) is None
    path.write_bytes(b"lock")
    assert lock_owner(str(path)) is None
    with holding(program, path) as owner:
        assert lock_owner(str(path)) == (owner if is_named else 0)
    assert lock_owner(str(path)) is None


def test_asking_releases_no_lock_of_this_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with StoreLock(str(path)):
        assert [lock_owner(str(path)) for _ in range(2)] == [os.getpid()] * 2
        assert refused(path)
    assert lock_owner(str(path)) is None


def test_a_lock_that_another_thread_takes_meanwhile_is_kept(tmp_path: Path) -> None:
    path, stopped = tmp_path / "lock", threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            lock_owner(str(path))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for each in threads:
        each.start()
    try:
        for _ in range(5):
            with StoreLock(str(path)):
                assert refused(path)
    finally:
        stopped.set()
        for each in threads:
            each.join()


def test_a_forked_child_sees_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with StoreLock(str(path)):
        child = os.fork()
        if child == 0:
            os._exit(lock_owner(str(path)) != os.getppid())
        assert os.waitpid(child, 0)[1] == 0
        assert lock_owner(str(path)) == os.getpid()
        assert refused(path)
