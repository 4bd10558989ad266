"""The power is cut at every call of retention: no gap, no message lost that did not expire, and deletion goes on.

::

    closed store ──► retention, recorded: some runs ──► States ──► disk ──► Snapshot ──► MessageStore.open
                                                                             │                 │
       messages of the closed store, by queue offset and physical offset ◄───┴─── compared ◄───┤
       files after all runs ◄──── the same ◄──── retention on the recovered store, to its end ◄┘

With an archive, a reader of both has all messages in every state, each once. The history names each deleted segment.
"""

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from random import Random

import pytest

from segmentlog.store.directory.retention_history import Deleted, History, deletions
from segmentlog.store.files.fs import Space
from segmentlog.store.files.segments import SegmentFile, list_segments
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.read.snapshot import Snapshot
from segmentlog.store.retention.archive import Archive
from segmentlog.store.retention.clean import Cleaner, DirectoryRemover, finish
from segmentlog.store.retention.policy import Disks, Plan, decide
from segmentlog.store.retention.settings import RetentionSettings
from segmentlog.store.retention.state import FileId, FileKind, Memory, Moment, State
from segmentlog.store.retention.survey import StoreFiles
from segmentlog.store.types import QueueKey
from segmentlog.store.write.housekeeping import Housekeeping
from segmentlog.store.write.message_store import MessageStore
from support.crash.campaign import new_disk, reopen, told
from support.crash.driver import CONFIG, ROOT, START_MS, TIME, Clock, Driver, make_message
from support.crash.memory_fs import MemoryFileSystem
from support.crash.promises import BrokenPromiseError
from support.crash.recorder import Recording, RecordingFileSystem
from support.crash.states import Breadth, States, labels
from support.crash.workloads import batches, one_queue, run, singles
from support.reading import read
from support.scale import Report, scale

pytestmark = pytest.mark.attack

BREADTH = Breadth(exhaustive_bits=scale(2, 4, 10), random_subsets=scale(4, 8, 64))
OPEN_BREADTH = Breadth(exhaustive_bits=0, random_subsets=scale(1, 1, 8), torn=1, per_point=scale(0, 2, 64))
OPEN_EVERY = scale(60, 6, 1)
"""Step from one call at which the power is cut to the next."""
ARCHIVE_BREADTH = Breadth(exhaustive_bits=scale(1, 4, 6), random_subsets=scale(1, 8, 16))

RUNS = 3
SETTINGS = RetentionSettings(files_per_run=2, log_pause_ms=0, queue_pause_ms=0)
OPEN_SETTINGS = RetentionSettings(
    file_reserved_hours=0, files_per_run=2, log_pause_ms=0, queue_pause_ms=0, start_ms=0, interval_ms=100
)
ROOMY = Space(100, 90, 90)
ARCHIVE = "/archived"
"""Archive of the tests that have one."""
COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "body")

Messages = dict[tuple[QueueKey, int], tuple[int, bytes]]
"""Physical offset and body by queue and queue offset."""


@dataclass(frozen=True, slots=True)
class Retained:
    """A store before retention, and what has to become of it."""

    disk: MemoryFileSystem  # the store before retention
    messages: Messages  # messages of the store before it
    files: frozenset[str]  # names of log, queue and index files after it
    start: int  # first physical offset of the log after it


def retain(fs: WritableFileSystem, runs: int = RUNS, archive: str | None = None) -> None:
    """Run retention on a store that is not open. Every segment is expired: a disk in memory has no times."""
    files = StoreFiles(fs, ROOT)
    cleaner = Cleaner(fs, files, DirectoryRemover(fs, lambda: None), replace(SETTINGS, archive=archive))
    memory = Memory()
    for number in range(runs):
        now = Moment(START_MS + 10_000 * number, 4)
        plan = decide(State(files.log(), files.below, 0, memory), now, Disks((ROOMY,), ROOMY), SETTINGS)
        memory = finish(cleaner.steps(plan, memory, now.ms), lambda _: None)


def prepare_retained() -> Retained:
    """Write a store in memory, close it, and see what retention leaves of it."""
    disk = new_disk()
    for seed, workload in enumerate((singles, batches, one_queue)):
        run(workload, Driver(RecordingFileSystem(disk), disk, config=CONFIG, seed=seed))
    after = disk.clone()
    retain(after)
    start = StoreFiles(after, ROOT).segments()[0].base
    assert start == 2 * RUNS * CONFIG.segment_bytes, "the workloads have too few segments"
    return Retained(disk, dict(_messages(disk)), _files(after), start)


def record(prepared: Retained, archive: str | None = None, runs: int = RUNS) -> Recording:
    recorder = RecordingFileSystem(prepared.disk.clone())
    retain(recorder, runs, archive)
    return recorder.recording


def cut_retained(
    prepared: Retained, recording: Recording, breadth: Breadth, archive: str | None = None, *, every: int = 1
) -> tuple[int, int]:
    """Judge a recording at every crash point, or some; return the states, and those in which the log is shorter."""
    states = shorter = 0
    for state in States(recording, breadth, lambda point: point % every == 0):
        disk = state.disk()
        with told(recording, state):
            start = _judge(disk, prepared, archive)
        states += 1
        shorter += 0 < start < prepared.start
    return states, shorter


def _judge(disk: MemoryFileSystem, prepared: Retained, archive: str | None) -> int:
    """Look at one disk, recover it, and let retention go on; return where its log began."""
    start = _start(disk)
    expected = {at: found for at, found in prepared.messages.items() if found[0] >= start}
    _judge_archive(disk, prepared, archive)
    for when in ("before", "after"):
        if when == "after":
            store = reopen(disk, CONFIG)
            if store.recovered.corrected or store.recovered.cut_bytes:
                raise BrokenPromiseError("recovered", f"{store.recovered}")
            store.close()
        _check_messages(disk, expected, when)
        snapshot = Snapshot.open(ROOT, fs=disk)
        for key in {key for key, _ in prepared.messages}:
            bounds = snapshot.bounds(key)
            last = max(at for queue, at in prepared.messages if queue == key) + 1
            first = min((at for queue, at in expected if queue == key), default=last)
            if (bounds.min_offset, bounds.max_offset) != (first, last):
                raise BrokenPromiseError("bounds", f"{when} recovery {bounds}, the log has {first} to {last}")
    # A run may have been cut off between two of its files: as many runs again as there could have been, and one.
    while StoreFiles(disk, ROOT).segments()[0].base < prepared.start:
        before = StoreFiles(disk, ROOT).segments()[0].base
        left = (prepared.start - before) // CONFIG.segment_bytes
        retain_some(disk, left, archive)
        if StoreFiles(disk, ROOT).segments()[0].base == before:
            raise BrokenPromiseError("goes on", f"the log still begins at {before}")
    retain_some(disk, 0, archive)
    if _files(disk) != prepared.files:
        raise BrokenPromiseError("goes on", f"other files are left: {sorted(_files(disk) ^ prepared.files)}")
    for path in () if archive is None else _files(prepared.disk) - prepared.files:
        copy = f"{archive}{path.removeprefix(ROOT)}"
        if disk.read(copy, 0, 1 << 30) != prepared.disk.read(path, 0, 1 << 30):
            raise BrokenPromiseError("archive", f"{copy} is no copy of {path}")
    return start


def _judge_archive(disk: MemoryFileSystem, prepared: Retained, archive: str | None) -> None:
    if archive is None or disk.stamp(archive) is None:
        return  # no copy was begun
    rows = list(_messages(disk, archive))
    found = dict(rows)
    if len(found) != len(rows) or found != prepared.messages:
        lost, more = prepared.messages.keys() - found.keys(), found.keys() - prepared.messages.keys()
        twice = len(rows) - len(found)
        raise BrokenPromiseError("archive", f"with it lost {sorted(lost)}, invented {sorted(more)}, {twice} twice")
    snapshot = Snapshot.open(ROOT, fs=disk, archive=archive)
    for key in {key for key, _ in found}:
        if snapshot.bounds(key).min_offset != min(at for queue, at in found if queue == key):
            raise BrokenPromiseError("archive", f"{snapshot.bounds(key)}")


def retain_some(fs: WritableFileSystem, segments: int, archive: str | None = None) -> None:
    """Run retention once, for at most so many segments; with 0 only queues and index follow the log."""
    files = StoreFiles(fs, ROOT)
    cleaner = Cleaner(fs, files, DirectoryRemover(fs, lambda: None), replace(SETTINGS, archive=archive))
    hour = 4 if segments else 5
    settings = RetentionSettings(files_per_run=segments)
    state = State(files.log(), files.below, 0, Memory())
    plan = decide(state, Moment(START_MS, hour), Disks((ROOMY,), ROOMY), settings)
    finish(cleaner.steps(plan, Memory(), START_MS), lambda _: None)


def _start(disk: MemoryFileSystem) -> int:
    """Return where the log begins, after a look that it has no gap, and that all before it is in the history."""
    segments = list_segments(disk, [StorePaths(ROOT).commit_log])
    start = segments[0].base if segments else 0
    for one, following in pairwise(segments):
        if one.stop != following.base:
            raise BrokenPromiseError("gap", f"nothing is between {one.path} and {following.path}")
    missing = set(range(0, start, CONFIG.segment_bytes)) - {each.log_base for each in deletions(disk, ROOT)}
    if missing:
        raise BrokenPromiseError("history", f"nothing says when the segments at {sorted(missing)} were deleted")
    return start


def _check_messages(disk: MemoryFileSystem, expected: Messages, when: str) -> None:
    found = dict(_messages(disk))
    if found != expected:
        lost, more = expected.keys() - found.keys(), found.keys() - expected.keys()
        raise BrokenPromiseError("messages", f"{when} recovery lost {sorted(lost)}, invented {sorted(more)}")


def _files(disk: MemoryFileSystem) -> frozenset[str]:
    paths = StorePaths(ROOT)
    parts = (paths.commit_log, paths.consume_queues, paths.index)
    return frozenset(path for path in disk.files() if path.startswith(parts))


def _messages(
    disk: MemoryFileSystem, archive: str | None = None
) -> Iterator[tuple[tuple[QueueKey, int], tuple[int, bytes]]]:
    for row in read(Snapshot.open(ROOT, fs=disk, archive=archive), columns=COLUMNS, max_bytes=1 << 24):
        key = QueueKey(row["topic"], row["queueId"])
        yield (key, row["queueOffset"]), (row["physicalOffset"], row["body"])


# A store that is written while its files expire


@dataclass(frozen=True, slots=True)
class Written:
    """Calls of a store that was written while its files expired; all messages that it acknowledged."""

    recording: Recording
    issued: Messages


def record_written() -> Written:
    """Write a store whose files expire at once; each end of the log that was acknowledged is marked."""
    recorder = RecordingFileSystem(new_disk())
    clock = TIME.clock = Clock()
    issued: Messages = {}
    draw = Random(7)
    store = MessageStore.open(ROOT, CONFIG, fs=recorder, clock=clock, retention=OPEN_SETTINGS)
    for number in range(90):
        message = make_message(draw, 400 if number % 3 else 1500, topic=f"Topic{number % 2}", queue_id=0)
        placed = store.append(message)
        issued[QueueKey(message.topic, 0), placed.queue_offset] = (placed.physical_offset, bytes(message.body))
        recorder.mark(placed.physical_offset + placed.size)
        clock.pass_time(40)
        store.tick()
    assert store.retention is not None
    assert store.retention.counts.files[FileKind.LOG] >= 2
    assert store.retention.counts.files[FileKind.QUEUE] >= 1
    store.close()
    return Written(recorder.recording, issued)


def cut_written(written: Written, breadth: Breadth, points: Callable[[int], bool]) -> tuple[int, int]:
    """Judge states of a store that was written; return how many states, and in how many the log began later."""
    states = later = 0
    for state in States(written.recording, breadth, points):
        promised = max(labels(written.recording, state), default=0)
        disk = state.disk()
        with told(written.recording, state):
            store = reopen(disk, CONFIG)
            end = store.end_offset
            store.close()
            if end < promised:
                raise BrokenPromiseError("durable", f"the log ends at {end}, {promised} was promised")
            start = _start(disk)
            expected = {at: found for at, found in written.issued.items() if start <= found[0] < end}
            _check_messages(disk, expected, "after")
        states += 1
        later += start > 0
    return states, later


@pytest.mark.scaled
def test_no_step_of_retention_loses_a_message_that_did_not_expire(report: Report) -> None:
    prepared = prepare_retained()
    recording = record(prepared)
    states, shorter = cut_retained(prepared, recording, BREADTH, every=scale(7, 1, 1))
    report("retention", f"{len(recording.ops)} calls, {states} states, {shorter} within the runs")
    assert states >= scale(8, 60, 60)
    assert shorter >= scale(3, 20, 20)


Patch = Callable[[object, str, object], None]


def _the_newest_of_a_run_goes_first(patch: Patch) -> None:
    real = Cleaner.steps

    def steps(self: Cleaner, plan: Plan, *rest: object) -> object:
        return real(self, replace(plan, deletions=plan.deletions[::-1]), *rest)  # type: ignore[arg-type]

    patch(Cleaner, "steps", steps)


def _history_comes_last(patch: Patch) -> None:
    real = History.add
    held: list[Deleted] = []

    def add(self: History, deleted: list[Deleted]) -> None:
        real(self, held)
        held[:] = deleted

    patch(History, "add", add)


def _one_segment_too_many(patch: Patch) -> None:
    def remove(self: DirectoryRemover, file: FileId, found: SegmentFile) -> None:
        directory = os.path.dirname(found.path)
        for path in (found.path, f"{directory}/{found.base + 2 * found.size:020d}"):
            self._fs.unlink(path)
        self._fs.sync_dir(directory)

    patch(DirectoryRemover, "remove", remove)


@pytest.mark.scaled
def test_no_step_of_archiving_loses_anything(report: Report) -> None:
    prepared = prepare_retained()
    recording = record(prepared, ARCHIVE, scale(1, 3, 3))
    states, shorter = cut_retained(prepared, recording, ARCHIVE_BREADTH, ARCHIVE, every=scale(20, 4, 1))
    report("retention with an archive", f"{len(recording.ops)} calls, {states} states, {shorter} within the runs")
    assert states >= scale(5, 150, 600)
    assert shorter >= scale(2, 100, 400)


def _copies(patch: Patch, *, written: bool) -> None:
    """Make copies that are not synced, or no copies."""

    def copy(self: Archive, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        self._make_directories(os.path.dirname(self.path_of(file)))
        if written:
            made = self._fs.create(self.path_of(file))
            made.write(0, self._fs.read(found.path, 0, found.size))
            made.close()
        yield 0.0

    patch(Archive, "copy", copy)


@pytest.mark.scaled
def test_messages_that_did_not_expire_are_kept(report: Report) -> None:
    written = record_written()
    states, later = cut_written(written, OPEN_BREADTH, lambda point: point % OPEN_EVERY == 0)
    report("retention while written", f"{len(written.recording.ops)} calls, {states} states, {later} began later")
    assert states >= scale(20, 60, 60)
    assert later >= scale(10, 30, 30)


def _entries_that_wait_are_not_flushed_first(patch: Patch) -> None:
    real = Housekeeping.remove

    def remove(self: Housekeeping, file: object, found: SegmentFile) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Housekeeping, "flush_queues", lambda _: None)
            real(self, file, found)  # type: ignore[arg-type]

    patch(Housekeeping, "remove", remove)


# Bugs, by the promise that each breaks: of a closed store, of its archive, of an open store

CLOSED = {
    "the log has no gap": _the_newest_of_a_run_goes_first,
    "the history names each deleted segment": _history_comes_last,
    "messages that did not expire are kept": _one_segment_too_many,
}
ARCHIVED = {
    "copies are durable": partial(_copies, written=True),
    "each deleted file has a copy": partial(_copies, written=False),
}
OPEN = {"entries are flushed before their segment is deleted": _entries_that_wait_are_not_flushed_first}


@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("promise", [*CLOSED, *ARCHIVED])
def test_a_broken_promise_of_retention_is_seen(promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, archive = prepare_retained(), ARCHIVE if promise in ARCHIVED else None
    with monkeypatch.context() as planted:
        (CLOSED | ARCHIVED)[promise](planted.setattr)
        recording = record(prepared, archive)
        if archive is None:
            planted.undo()
        with pytest.raises(BrokenPromiseError):
            cut_retained(prepared, recording, BREADTH, archive)


@pytest.mark.parametrize("promise", OPEN)
def test_a_broken_promise_of_an_open_store_is_seen(promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as planted:
        OPEN[promise](planted.setattr)
        written = record_written()
    with pytest.raises(BrokenPromiseError):
        cut_written(written, OPEN_BREADTH, lambda point: point % 15 == 0)
