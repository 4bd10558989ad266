import os
import time
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, NotAStoreError, OnDamage, Outgoing, StoreClosedError
from segmentlog.store.errors import ConfigError, StoreInUseError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.write.assembly import LockedStore, Teardown, assemble, lock_and_recover, make_directory
from segmentlog.store.write.attachments import NO_ATTACHMENTS
from support.written_stores import SMALL


def test_steps_are_taken_once_and_last_first() -> None:
    taken: list[str] = []
    teardown = Teardown()
    for name in "abc":
        teardown.add(lambda name=name: taken.append(name))  # type: ignore[misc]
    teardown.run()
    teardown.run()
    assert taken == ["c", "b", "a"]


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


@pytest.mark.parametrize("interrupts", [1, 2])
def test_an_interrupted_step_is_repeated_and_a_second_interrupt_leaves_the_rest(interrupts: int) -> None:
    taken: list[str] = []

    def stop() -> None:
        taken.append("stop")
        if len(taken) <= interrupts:
            raise KeyboardInterrupt

    teardown = Teardown()
    teardown.add(lambda: taken.append("release"))
    teardown.add(stop)
    with pytest.raises(KeyboardInterrupt):
        teardown.run()
    assert taken == ["stop", "stop", *(["release"] if interrupts == 1 else [])]
    teardown.run()
    assert taken == ["stop"] * (interrupts + 1) + ["release"]


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


def base(path: Path, teardown: Teardown) -> LockedStore:
    make_directory(FS, str(path))
    return lock_and_recover(FS, str(path), SMALL, on_damage=OnDamage.REFUSE, clock=lambda: 1_000, teardown=teardown)


def test_a_directory_is_made_once_and_its_parent_has_to_exist(tmp_path: Path) -> None:
    make_directory(FS, str(tmp_path / "s"))
    make_directory(FS, str(tmp_path / "s"))
    assert (tmp_path / "s").is_dir()
    with pytest.raises(NotAStoreError):
        make_directory(FS, str(tmp_path / "missing" / "s"))


def test_a_directory_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s" / "lost+found").mkdir(parents=True)
    make_directory(FS, str(tmp_path / "s"))
    for name in ("compaction", "rocksdbstore", "abort.bak"):  # a broker of 5.x that never had a message
        (tmp_path / "s" / name).mkdir()
    make_directory(FS, str(tmp_path / "s"))
    (tmp_path / "s" / "photos").mkdir()
    with pytest.raises(NotAStoreError, match="photos"):
        make_directory(FS, str(tmp_path / "s"))


def test_parts_append_and_share_one_failure_and_services_wait_to_be_started(tmp_path: Path) -> None:
    teardown = Teardown()
    locked = base(tmp_path / "s", teardown)
    parts = assemble(locked, NO_ATTACHMENTS, None)
    assert parts.retention is None
    with MessageStore(parts) as store:
        place = store.append(Outgoing(topic="T", body=b"x"))
        assert (place.physical_offset, place.store_timestamp) == (0, 1_000)
        store.wait_dispatched()
        assert list(store.reader().topics()) == ["T"]
    with pytest.raises(StoreClosedError):
        locked.check_owned()  # the teardown released the lock


def test_a_store_is_locked_until_the_teardown_runs(tmp_path: Path) -> None:
    teardown = Teardown()
    base(tmp_path / "s", teardown)
    with pytest.raises(StoreInUseError):
        base(tmp_path / "s", Teardown())
    teardown.run()
    again = Teardown()
    base(tmp_path / "s", again)
    again.run()


def test_the_teardown_releases_a_store_after_a_failed_recovery(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", SMALL) as store:
        store.append(Outgoing(topic="T", body=b"x"))
    teardown = Teardown()
    with pytest.raises(ConfigError):
        lock_and_recover(
            FS,
            str(tmp_path / "s"),
            type(SMALL)(segment_bytes=64 << 10),
            on_damage=OnDamage.REFUSE,
            clock=lambda: 0,
            teardown=teardown,
        )
    teardown.run()
    MessageStore.open(tmp_path / "s", SMALL).close()
