"""S19: the lock of a store that is open gets lost, and no acknowledged message does.

::

    copytree in the owner's process      drops the record lock; another process of ours is refused all the same
    … and a broker takes the store       the owner fails before it acknowledges anything more
    … and stops again                    the same
    … and no other process comes         the owner takes the lock again

The broker is Java's own file lock where there is a JDK, and a Python process with the same system call elsewhere.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import (
    BatchId,
    Flush,
    MessageStore,
    Outgoing,
    Services,
    StoreFailedError,
    StoreInUseError,
    StoreReader,
)
from segmentlog.store.files import fresh_directory, store_lock
from segmentlog.store.files.store_lock import StoreLock
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.groups import Recorded, commit_offsets
from segmentlog.store.maintenance import rebuild_queues
from segmentlog.store.sink import Staging
from segmentlog.store.types import QueueKey
from support.batches import batch_of
from support.live_copy import copy_live
from support.reading import read
from support.scale import scale
from support.written_stores import SMALL, message

pytestmark = pytest.mark.attack

SECOND = """
import sys
from segmentlog.store import MessageStore, StoreInUseError
from support.written_stores import SMALL, message
try:
    store = MessageStore.open(sys.argv[1], SMALL)
except StoreInUseError as error:
    sys.exit(f"refused: {error}")
for serial in range(3):
    store.append(message(0, 2, serial))
store.close()
"""
BROKER = """
import fcntl, sys
file = open(sys.argv[1], "r+b", buffering=0)
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
file.write(b"lock")
print("held", flush=True)
sys.stdin.read()
"""
JAVA = """
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;

class Broker {
    public static void main(String[] arguments) throws Exception {
        RandomAccessFile file = new RandomAccessFile(arguments[0], "rw");
        FileLock lock = file.getChannel().tryLock(0, 1, false);
        file.getChannel().write(ByteBuffer.wrap("lock".getBytes("UTF-8")));
        file.getChannel().force(true);
        System.out.println(lock == null ? "refused" : "held");
        System.in.read();
    }
}
"""
SINK = """
import sys
from segmentlog.store import BatchId
from segmentlog.store.sink import Staging, commit_batch, prepare_store
from support.batches import batch_of
from support.written_stores import SMALL, message
path, name = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
prepare_store(path, SMALL)
with Staging.open(path, name, 0, "a", SMALL) as staging:
    staging.add(batch_of([message(0, 2, 0), message(0, 2, 1)]))
    staged = [staging.finish()]
commit_batch(path, SMALL, BatchId(name, 0), staged, wait_s=120)
"""
ADOPTIONS, SINKS = scale(1, 2, 40), 6
TESTS = Path(__file__).parent.parent
ON_CALL = replace(SMALL, services=Services.ON_CALL)


@pytest.fixture(params=["python", "java"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if request.param == "python":
        return [sys.executable, "-c", BROKER]
    if shutil.which("javac") is None:
        pytest.skip("there is no JDK")
    (tmp_path / "Broker.java").write_text(JAVA)
    subprocess.run(["javac", "-d", tmp_path, tmp_path / "Broker.java"], check=True)
    return ["java", "-cp", str(tmp_path), "Broker"]


@contextmanager
def running(broker: list[str], path: Path) -> Iterator[None]:
    with subprocess.Popen(
        [*broker, str(path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate("\n")


def lose_lock(path: Path) -> None:
    """Drop the record lock of this process, as any copy of the store's directory does."""
    copy_live(path, path.with_name("copy"))


def serials(path: Path) -> list[bytes]:
    return sorted(bytes(row["body"]) for row in read(StoreReader.open(path)))


def bodies(writer: int, count: int) -> list[bytes]:
    return sorted(bytes(message(0, writer, serial).body) for serial in range(count))


def test_a_copy_of_the_directory_lets_no_second_writer_in(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, ON_CALL) as store:
        lose_lock(path)
        second = subprocess.run(
            [sys.executable, "-c", SECOND, path], cwd=TESTS, check=False, capture_output=True, text=True
        )
        assert "refused" in second.stderr
        assert StoreReader.open(path).is_live
        for serial in range(20):
            store.append(message(0, 1, serial))
    assert serials(path) == bodies(1, 20)


@pytest.mark.parametrize("services", Services)
@pytest.mark.parametrize("stays", [True, False])
def test_a_broker_that_comes_makes_the_store_fail(
    tmp_path: Path, broker: list[str], services: Services, stays: bool
) -> None:
    path = tmp_path / "store"
    config = replace(SMALL, services=services, flush_interval_ms=60_000, queue_flush_interval_ms=60_000)
    store = MessageStore.open(path, config)
    acknowledged = 7
    for serial in range(acknowledged):
        store.append(message(0, 1, serial))
    store.wait_dispatched()  # a round that began before the loss may end after it
    lose_lock(path)
    with running(broker, path):
        if stays:
            with pytest.raises(StoreFailedError, match="lost the lock"):
                store.append(message(0, 1, 99))
    if not stays:
        with pytest.raises(StoreFailedError, match="a broker opened the store"):
            store.append(message(0, 1, 99))
    with pytest.raises(StoreFailedError):
        store.append(message(0, 1, 99))
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "lock"}
    with pytest.raises(StoreFailedError):
        store.close()
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "lock"} == before
    MessageStore.open(path, SMALL).close()
    assert set(bodies(1, acknowledged)) <= set(serials(path))


@pytest.mark.parametrize("bug", ["ensure_held", "_take"])
def test_planted_bug_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    """The record lock is not taken again; the other lock is not taken at all."""
    if bug == "ensure_held":
        monkeypatch.setattr(StoreLock, "ensure_held", StoreLock.check)
        with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
            test_a_broker_that_comes_makes_the_store_fail(
                tmp_path, [sys.executable, "-c", BROKER], Services.ON_CALL, stays=True
            )
    else:
        monkeypatch.setattr(store_lock, "lock_ours", lambda _: True)
        with pytest.raises(AssertionError, match="refused"):
            test_a_copy_of_the_directory_lets_no_second_writer_in(tmp_path)


def test_the_lock_is_taken_again_before_a_broker_comes(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, ON_CALL) as store:
        for serial in range(2):
            lose_lock(path)
            store.append(message(0, 1, serial))
            broker = [sys.executable, "-c", BROKER, path / "lock"]
            refused = subprocess.run(broker, stdin=subprocess.DEVNULL, check=False, capture_output=True, text=True)
            assert "BlockingIOError" in refused.stderr


def test_housekeeping_takes_it_again_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, replace(SMALL, flush=Flush.ASYNC, services=Services.BACKGROUND)):
        owner = LocalWritableFileSystem()
        lose_lock(path)
        until = time.monotonic() + 300
        while " POSIX " not in locks_of(path / "lock"):
            assert time.monotonic() < until
            time.sleep(0.01)
        assert owner.lock_owner(str(path / "lock")) == os.getpid()


def locks_of(path: Path) -> str:
    inode = f":{path.stat().st_ino} "
    return "\n".join(line for line in Path("/proc/locks").read_text().splitlines() if inode in line)


def commit(store: MessageStore, path: Path) -> None:
    with Staging.open(path, "job", 0, "a", store.config) as staging:
        staging.add(batch_of([message(0, 2, 0)]))
        store.commit_batch(BatchId("app", 0), [staging.finish()])


def roll(store: MessageStore, _path: Path) -> None:
    store.append(Outgoing(topic="T", body=bytes(SMALL.segment_bytes * 3 // 4)))


@pytest.mark.parametrize("act", [commit, roll])
def test_a_batch_and_a_roll_ask_for_the_lock_first(tmp_path: Path, act: Callable[[MessageStore, Path], None]) -> None:
    """With asynchronous flushes, and an hour between two rounds of housekeeping."""
    path = tmp_path / "store"
    hour = 3_600_000
    config = replace(
        SMALL, flush=Flush.ASYNC, services=Services.BACKGROUND, flush_interval_ms=hour, queue_flush_interval_ms=hour
    )
    store = MessageStore.open(path, config)
    store.append(Outgoing(topic="T", body=bytes(SMALL.segment_bytes * 3 // 4)))
    log = sorted((path / "commitlog").iterdir())
    end = store.end_offset
    lose_lock(path)
    with running([sys.executable, "-c", BROKER], path):
        with pytest.raises((StoreInUseError, StoreFailedError), match="lost the lock"):
            act(store, path)
        assert store.end_offset == end
        assert sorted((path / "commitlog").iterdir()) == log
        with pytest.raises(StoreFailedError):
            store.append(Outgoing(topic="T", body=b"x"))
        with pytest.raises(StoreFailedError):
            store.close()


def test_a_file_system_that_is_named_locks_as_well(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL, fs=LocalWritableFileSystem()) as store:
        for fs in (None, LocalWritableFileSystem()):
            with pytest.raises(StoreInUseError, match="this process has this store open"):
                MessageStore.open(path, SMALL, fs=fs)
        second = subprocess.run(
            [sys.executable, "-c", SECOND, path], cwd=TESTS, check=False, capture_output=True, text=True
        )
        assert "refused" in second.stderr
        store.append(Outgoing(topic="T", body=b"x"))


def test_positions_are_not_written_into_a_store_that_a_broker_took(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, replace(SMALL, services=Services.ON_CALL)) as store:
        store.append(Outgoing(topic="T", body=b"x"))
    store = MessageStore.open(path, ON_CALL)
    lose_lock(path)
    with running([sys.executable, "-c", BROKER], path):
        fs = LocalWritableFileSystem()
        assert commit_offsets(path, "g", {QueueKey("T", 0): 1}, fs=fs).recorded is Recorded.SIDECAR
    assert not (path / "config" / "consumerOffset.json").exists()
    with pytest.raises(StoreFailedError):
        store.append(Outgoing(topic="T", body=b"y"))
    with pytest.raises(StoreFailedError):
        store.close()


def test_a_rebuild_that_lost_the_lock_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as store:
        for serial in range(20):
            store.append(message(0, 1, serial))
    shutil.rmtree(path / "consumequeue")
    write = fresh_directory.FreshDirectory.write
    with ExitStack() as brokers:

        def interrupted_by_a_broker(self: fresh_directory.FreshDirectory, *arguments: Any, **named: Any) -> None:
            write(self, *arguments, **named)
            monkeypatch.undo()
            lose_lock(path)
            brokers.enter_context(running([sys.executable, "-c", BROKER], path))

        monkeypatch.setattr(fresh_directory.FreshDirectory, "write", interrupted_by_a_broker)
        with pytest.raises(StoreInUseError, match="lost the lock"):
            rebuild_queues(StoreReader.open(path), path / "consumequeue")
    assert not (path / "consumequeue").exists()


@pytest.mark.scaled(quick=0)
def test_many_sinks_that_adopt_a_store_take_turns(tmp_path: Path, report: Callable[[str, object], None]) -> None:
    """None of them takes another one, which is still opening the store, for a broker."""
    for turn in range(ADOPTIONS):
        path = tmp_path / f"store-{turn}"
        with MessageStore.open(path, SMALL) as store:
            for serial in range(300):
                store.append(message(0, 1, serial))
        shutil.rmtree(path / ".segmentlog")
        (path / "lock").write_bytes(b"lock")
        sinks = [
            subprocess.Popen(
                [sys.executable, "-c", SINK, path, f"sink-{number}"],
                cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for number in range(SINKS)
        ]  # fmt: skip
        for sink in sinks:
            assert sink.stdout is not None
            assert sink.stdout.readline() == "ready\n"
        errors = [sink.communicate("go\n" if sink is sinks[-1] else None)[1] for sink in start(sinks)]
        assert errors == [""] * SINKS
        assert len(serials(path)) == 300 + 2 * SINKS
    report("S19 adopted at once", f"{ADOPTIONS} times {SINKS} sinks")


def start(sinks: "list[subprocess.Popen[str]]") -> "list[subprocess.Popen[str]]":
    for sink in sinks[:-1]:
        assert sink.stdin is not None
        sink.stdin.write("go\n")
        sink.stdin.flush()
    return sinks
