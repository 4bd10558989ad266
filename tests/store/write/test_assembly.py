import os
import time
from pathlib import Path

import pytest

from segmentlog.store import NotAStoreError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.write.assembly import Teardown, make_directory


def test_an_error_is_raised_after_the_last_step() -> None:
    taken: list[str] = []

    def fail() -> None:
        raise OSError("cannot be closed")

    teardown = Teardown()
    teardown.add(lambda: taken.append("a"))
    teardown.add(fail)
    with pytest.raises(OSError, match="cannot be closed"):
        teardown.run()
    assert taken == ["a"]


def test_the_lock_is_not_released_before_an_interrupted_step_is_repeated() -> None:
    taken: list[str] = []

    def stop() -> None:
        taken.append("stop")
        if len(taken) == 1:
            raise KeyboardInterrupt

    teardown = Teardown()
    teardown.add(lambda: taken.append("release"))
    teardown.add(stop)
    with pytest.raises(KeyboardInterrupt):
        teardown.run()
    assert taken == ["stop"]
    teardown.run()
    teardown.run()
    assert taken == ["stop", "stop", "release"]


def test_a_forked_child_takes_no_step() -> None:
    taken: list[str] = []
    teardown = Teardown()
    teardown.add(lambda: taken.append("a"))
    child = os.fork()
    if child == 0:
        teardown.run()
        teardown.run_in_thread()
        time.sleep(0.1)  # a thread that should not be there has the time to take the step
        os._exit(len(taken))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


FS = LocalWritableFileSystem()


def test_a_directory_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s" / "lost+found").mkdir(parents=True)
    make_directory(FS, str(tmp_path / "s"))
    for name in ("compaction", "rocksdbstore", "abort.bak"):  # a broker of 5.x that never had a message
        (tmp_path / "s" / name).mkdir()
    make_directory(FS, str(tmp_path / "s"))
    (tmp_path / "s" / "photos").mkdir()
    with pytest.raises(NotAStoreError, match="photos"):
        make_directory(FS, str(tmp_path / "s"))
