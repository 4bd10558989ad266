"""Each system call of the public operations fails in turn: the error is the store's own, and says where and what to do.

::

    store ──► copy ──► operation, call n fails ──► the same answer as ever, or an error of store/errors.py
                                                      path of the file, offset where it was read, a remedy
                       afterwards, on a good disk ──► opens; what was acknowledged is there, nothing that was never put
                                                      no descriptor is left open

Python's own functions are replaced, and the two functions of the C library that the store calls itself. What fails here
is one level below `support.crash.faults`, which fails the store's own verbs: here the conversion of errors is attacked.
"""

import builtins
import ctypes
import errno
import gc
import mmap
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self
from unittest.mock import patch

import pyarrow as pa
import pytest

from segmentlog.connector.options.read_options import Mode, parse_read_options
from segmentlog.connector.read import plan_partitions
from segmentlog.store import (
    BatchId,
    Flush,
    MessageStore,
    Outgoing,
    QueueKey,
    QueueSource,
    ScanSpec,
    SegmentLogError,
    Services,
    Snapshot,
)
from segmentlog.store.files import writable_fs
from segmentlog.store.find import Finder
from segmentlog.store.follow import store_id
from segmentlog.store.groups import ToEarliest, group_offsets, list_groups, publish_progress, reset_group
from segmentlog.store.maintenance import rebuild_index, rebuild_queues, salvage, verify
from segmentlog.store.sink import Staging, discard_jobs, last_commit, stored_config, sweep_staging, topic_queues
from support.delegating import Delegating
from support.reading import whole_queues
from support.scale import Report, scale
from support.small_store import CONFIG as SMALL

pytestmark = pytest.mark.attack

CONFIG = replace(SMALL, segment_bytes=1 << 13, services=Services.ON_CALL, flush=Flush.SYNC)
BODIES: Final = tuple(f"body {number} {'.' * number}".encode() for number in range(90))
NEW: Final = tuple(f"new {number}".encode() for number in range(6))
SPEC: Final = ScanSpec(columns=("topic", "queueOffset", "body"), check_crc=True)
CALLS_MAX: Final = scale(5, 50, 1 << 30)
"""About so many calls of an operation fail, evenly spread."""
OF_THE_ERRORS: Final = scale(1, 1, 9)
"""Of the errors that a call can meet so many are tried, by turns."""

BY_PATH: Final = ("open", "stat", "lstat", "listdir", "scandir", "mkdir", "rename", "unlink", "rmdir", "access")
BY_DESCRIPTOR: Final = (
    *("read", "pread", "preadv", "fstat", "lseek", "write", "pwrite", "fsync", "fdatasync", "ftruncate"),
    "posix_fallocate",
)


class FailingCalls:
    """Counts the calls of an operation below a directory, and fails call ``at``, from 1 (0: no call).

    ``sticky`` fails all later calls of the same name as well: a device that is gone, a limit that is reached.
    """

    def __init__(self, root: str, at: int = 0, number: int = 0, *, sticky: bool = False) -> None:
        self._root = root
        self._at = at
        self._number = number
        self._sticky = sticky
        self._failed: str | None = None
        self.calls: list[str] = []
        """Names of the calls so far."""
        self.failed_path: str | None = None
        """Target of the failed call."""

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Count, and fail what is to fail, of what this thread and others call inside."""
        with ExitStack() as patches:

            def replace(owner: Any, name: str, made: Callable[[Any], Any]) -> None:
                patches.enter_context(patch.object(owner, name, made(getattr(owner, name))))

            for name in (*BY_PATH, *BY_DESCRIPTOR):
                replace(os, name, lambda real, name=name: self._wrapped(name, real))
            replace(builtins, "open", lambda real: self._wrapped("open", real))
            replace(mmap, "mmap", lambda real: self._wrapped("mmap", real))
            replace(writable_fs, "_pwritev", lambda real: self._wrapped_c("pwritev", real))
            replace(writable_fs._libc, "syncfs", lambda real: self._wrapped_c("syncfs", real))
            yield

    def _fails(self, name: str, about: Any) -> str | None:
        """Count a call; the path that it is about if it is to fail."""
        path = _path_of(about)
        if path is None or not path.startswith(self._root):
            return None
        self.calls.append(name)
        first = len(self.calls) == self._at
        if not first and not (self._sticky and name == self._failed):
            return None
        if first:
            self._failed, self.failed_path = name, path
        return path

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            about = arguments[0] if arguments else next(iter(named.values()), None)
            path = self._fails(name, about)
            if path is not None:
                raise OSError(self._number, os.strerror(self._number), path)
            found = real(*arguments, **named)
            return _Entries(found, self) if name == "scandir" else found

        return call

    def _wrapped_c(self, name: str, real: Callable[..., int]) -> Callable[..., int]:
        def call(fd: int, *arguments: Any) -> int:
            if self._fails(name, fd) is None:
                return real(fd, *arguments)
            ctypes.set_errno(self._number)
            return -1

        return call

    def fail_entry(self, path: str) -> None:
        """Count the stat of a directory entry, and raise if it is to fail."""
        if self._fails("stat", path) is not None:
            raise OSError(self._number, os.strerror(self._number), path)


class _Entries:
    """A directory that is listed, whose entries are asked for their status."""

    def __init__(self, found: Any, calls: FailingCalls) -> None:
        self._found = found
        self._calls = calls

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._found.close()

    def __iter__(self) -> Iterator["_Entry"]:
        return self

    def __next__(self) -> "_Entry":
        return _Entry(next(self._found), self._calls)

    def close(self) -> None:
        self._found.close()


class _Entry(Delegating):
    """One entry of a directory; its status may fail."""

    def __init__(self, entry: os.DirEntry[str], calls: FailingCalls) -> None:
        super().__init__(entry)
        self._calls = calls

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        self._calls.fail_entry(self.inner.path)
        return self.inner.stat(follow_symlinks=follow_symlinks)

    def __fspath__(self) -> str:
        return self.inner.path


_readlink = os.readlink


def _path_of(about: Any) -> str | None:
    if isinstance(about, int):
        try:
            return _readlink(f"/proc/self/fd/{about}")
        except OSError:
            return None
    try:
        return os.path.abspath(os.fsdecode(about))
    except TypeError:
        return None


def reads(name: str) -> bool:
    """Return whether a call reads bytes at an offset of a file, so that its error must name it."""
    return name in {"pread", "preadv"}


READ_ERRORS: Final = (errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ENOMEM)
"""Errors of reading."""
WRITE_ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.EDQUOT, errno.EINTR)
"""Errors of writing."""


def outgoing(body: bytes) -> Outgoing:
    return Outgoing(topic="Orders", queue_id=len(body) % 2, body=body, keys=f"k{len(body)}", tags="t")


def batch(bodies: tuple[bytes, ...]) -> pa.RecordBatch:
    return pa.record_batch(
        {"topic": ["Orders"] * len(bodies), "queueId": pa.array([0] * len(bodies), pa.int32()), "body": list(bodies)}
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed, with queues, an index, a batch, groups; and one that a crash left, beside it."""
    store = tmp_path_factory.mktemp("failing") / "whole"
    with MessageStore.open(store, CONFIG) as opened:
        for body in BODIES[:60]:
            opened.append(outgoing(body))
        opened.append_batch(batch(BODIES[60:80]))
        with Staging.open(store, "job", 0, "a", CONFIG) as staging:
            staging.add(batch(BODIES[80:]))
            staged = staging.finish()
        opened.commit_batch(BatchId("app", 1), [staged])
    publish_progress(str(store), "readers", {QueueKey("Orders", 0): 3})
    return store


# Operations. A reading one returns its answer; a writing one reports each acknowledgement.

Acknowledged = Callable[[tuple[bytes, ...]], None]


def scanned(snapshot: Snapshot) -> list[Any]:
    tasks = snapshot.plan(whole_queues(snapshot), max_bytes=1 << 13)
    return [row for task in tasks for piece in snapshot.scan(task, SPEC) for row in piece.to_pylist()]


def scan(store: Path) -> Any:
    return scanned(Snapshot.open(store))


def scan_what_a_crash_left(store: Path) -> Any:
    return scan(store)


def scan_the_log(store: Path) -> Any:
    return scanned(Snapshot.open(store, queue_source=QueueSource.COMMIT_LOG))


def follow(store: Path) -> Any:
    snapshot = Snapshot.open(store)
    first = scanned(snapshot)
    snapshot = snapshot.newer()
    return first, scanned(snapshot)


def look_up(store: Path) -> Any:
    snapshot = Snapshot.open(store)
    key = QueueKey("Orders", 0)
    times = [snapshot.offset_at(key, ms) for ms in (0, 1 << 50)]
    message = snapshot.message_at(0)
    return times, message and message.body


def look_up_keys(store: Path) -> Any:
    return Finder(Snapshot.open(store)).by_keys(["Orders"], ["k20"]).physical_offset.tolist()


def groups(store: Path) -> Any:
    return group_offsets(store, "readers"), list_groups(str(store))


def small_facts(store: Path) -> Any:
    return store_id(str(store)), topic_queues(store), last_commit(store), stored_config(store, CONFIG)


def verified(store: Path) -> Any:
    return verify(store)


def plan_of_the_connector(store: Path) -> Any:
    options = parse_read_options({"path": str(store), "subscribe": "Orders"}, Mode.BATCH)
    return plan_partitions(options, SPEC)


READING: Final = (
    scan,
    scan_what_a_crash_left,
    scan_the_log,
    follow,
    look_up,
    look_up_keys,
    groups,
    small_facts,
    verified,
    plan_of_the_connector,
)


def append(store: Path, acknowledged: Acknowledged) -> None:
    with MessageStore.open(store, CONFIG) as opened:
        for body in NEW:
            opened.append(outgoing(body))
            acknowledged((body,))
        opened.flush()


def append_a_batch(store: Path, acknowledged: Acknowledged) -> None:
    with MessageStore.open(store, CONFIG) as opened:
        opened.append_batch(batch(NEW))
        acknowledged(NEW)
        opened.tick()


def recover(store: Path, acknowledged: Acknowledged) -> None:
    append(store, acknowledged)


def begin_a_store(store: Path, acknowledged: Acknowledged) -> None:
    append(store, acknowledged)


def commit_a_batch(store: Path, acknowledged: Acknowledged) -> None:
    with Staging.open(store, "job2", 0, "a", CONFIG) as staging:
        staging.add(batch(NEW))
        staged = staging.finish()
    with MessageStore.open(store, CONFIG) as opened:
        opened.commit_batch(BatchId("app", 2), [staged])
        acknowledged(NEW)
    discard_jobs(store, "job2")
    sweep_staging(store, idle_s=0)


def set_groups(store: Path, acknowledged: Acknowledged) -> None:
    publish_progress(str(store), "readers", {QueueKey("Orders", 1): 2})
    reset_group(str(store), "readers", ToEarliest())
    acknowledged(())


def salvage_it(store: Path, acknowledged: Acknowledged) -> None:
    salvage(store, store.parent / "salvaged", segment_bytes=CONFIG.segment_bytes, queue_segment_entries=20)
    acknowledged(())


def rebuild(store: Path, acknowledged: Acknowledged) -> None:
    snapshot = Snapshot.open(store)
    rebuild_queues(snapshot, store / "rebuilt", entries_per_segment=20)
    rebuild_index(snapshot, store / "index")
    acknowledged(())


WRITING: Final = (append, append_a_batch, recover, begin_a_store, commit_a_batch, set_groups, salvage_it, rebuild)


def crashed(store: Path) -> None:
    (store / "abort").touch()
    shutil.rmtree(store / "consumequeue" / "Orders" / "1")


BEFORE: Final[dict[Callable[..., Any], Callable[[Path], None]]] = {
    scan_what_a_crash_left: crashed,
    recover: crashed,
    begin_a_store: shutil.rmtree,
    rebuild: lambda store: shutil.rmtree(store / "index"),
}
"""Change of the copy of a store before the operation."""


@dataclass
class Count:
    calls: int = 0
    failed: int = 0
    unnoticed: int = 0
    errors: Counter[str] = field(default_factory=Counter)


def faults(calls: list[str], numbers: tuple[int, ...]) -> Iterator[tuple[int, int, bool]]:
    for step, at in enumerate(range(1, len(calls) + 1, max(1, len(calls) // CALLS_MAX))):
        for turn in range(step, step + OF_THE_ERRORS):
            yield at, numbers[turn % len(numbers)], turn // len(numbers) % 2 == 1


def complaints(error: BaseException, calls: FailingCalls, call: str) -> list[str]:
    if not isinstance(error, SegmentLogError):
        return [f"{error!r} is none of the store's errors"]
    wrong = []
    if error.path is None or not os.path.isabs(error.path) or error.path not in str(error):
        wrong.append("names no path")
    if not error.fix:
        wrong.append("says not what to do")
    if reads(call) and error.path == calls.failed_path and error.offset is None:
        wrong.append("says not where in the file")
    return [f"{error}: {what}" for what in wrong]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def check_descriptors(before: int) -> list[str]:
    if descriptors() > before:
        gc.collect()
    left = descriptors() - before
    return [f"{left} descriptors are left open"] if left > 0 else []


def place(whole: Path, folder: Path, operation: Callable[..., Any]) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    store = Path(shutil.copytree(whole, folder / "store"))
    if operation in BEFORE:
        BEFORE[operation](store)
    return store


def attempted(act: Callable[[], Any], calls: FailingCalls, call: str, count: Count, expected: Any = None) -> list[str]:
    """Run an operation while a call fails; return the faults of its error, or of its answer."""
    before, wrong = descriptors(), list[str]()
    try:
        with calls.armed():
            found = act()
        count.unnoticed += 1
        wrong = [] if found == expected else ["another answer, and no error"]
    except Exception as error:  # noqa: BLE001 - whatever comes is judged
        count.failed += 1
        count.errors[type(error).__name__] += 1
        wrong = complaints(error, calls, call)
        del error
    return [*wrong, *check_descriptors(before)]


def verdict(name: str, count: Count, wrong: list[str], report: Report) -> None:
    report(name, count)
    assert not wrong, f"{len(wrong)} of {count.failed + count.unnoticed}:\n" + "\n".join(wrong[:40])
    assert count.failed > count.unnoticed


def named(call: str, at: int, number: int, *, sticky: bool) -> str:
    return f"call {at}, {call}, {errno.errorcode[number]}{' for good' if sticky else ''}: "


@pytest.mark.scaled
@pytest.mark.parametrize("operation", READING, ids=lambda each: each.__name__)
def test_a_failed_call_of_a_reader_is_an_error_of_the_store_or_changes_nothing(
    operation: Callable[[Path], Any], whole: Path, tmp_path: Path, report: Report
) -> None:
    store = place(whole, tmp_path / "run", operation)
    operation(store)  # what it imports it has imported
    healthy = FailingCalls(str(store))
    with healthy.armed():
        expected = operation(store)
    count, wrong = Count(calls=len(healthy.calls)), []
    for at, number, sticky in faults(healthy.calls, READ_ERRORS):
        calls, call = FailingCalls(str(store), at, number, sticky=sticky), healthy.calls[at - 1]
        problems = attempted(lambda: operation(store), calls, call, count, expected)
        wrong += [named(call, at, number, sticky=sticky) + each for each in problems]
    verdict(operation.__name__, count, wrong, report)


@pytest.mark.scaled
@pytest.mark.parametrize("operation", WRITING, ids=lambda each: each.__name__)
def test_a_failed_call_of_a_writer_is_an_error_of_the_store_and_loses_nothing(
    operation: Callable[[Path, Acknowledged], None], whole: Path, tmp_path: Path, report: Report
) -> None:
    operation(place(whole, tmp_path / "run", operation), lambda _: None)
    store = place(whole, tmp_path / "run", operation)
    healthy = FailingCalls(str(tmp_path / "run"))
    with healthy.armed():
        operation(store, lambda _: None)
    count, wrong = Count(calls=len(healthy.calls)), []
    for at, number, sticky in faults(healthy.calls, WRITE_ERRORS):
        store = place(whole, tmp_path / "run", operation)
        calls, call = FailingCalls(str(tmp_path / "run"), at, number, sticky=sticky), healthy.calls[at - 1]
        promised = list[bytes]() if operation is begin_a_store else [*BODIES]
        problems = attempted(lambda: operation(store, promised.extend), calls, call, count)  # noqa: B023 - called here
        problems += afterwards(store, promised)
        wrong += [named(call, at, number, sticky=sticky) + each for each in problems]
    verdict(operation.__name__, count, wrong, report)


def afterwards(store: Path, promised: list[bytes]) -> list[str]:
    try:
        with MessageStore.open(store, CONFIG) as opened:
            held = [row["body"] for row in scanned(opened.snapshot())]
    except (SegmentLogError, OSError) as error:
        return [f"opening it again: {error!r}"]
    missing, invented = set(promised) - set(held), set(held) - {*BODIES, *NEW}
    twice = [body for body, times in Counter(held).items() if times > 1]
    return [
        f"{what}: {sorted(which)[:3]}"
        for what, which in (("lost", missing), ("never put", invented), ("twice", set(twice)))
        if which
    ]
