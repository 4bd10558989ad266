"""The power is cut at every call of retention: no gap, no message lost that did not expire, and deletion goes on."""

import os
from collections.abc import Callable, Generator
from dataclasses import replace

import pytest

from segmentlog.store.directory.retention_history import Deleted, History
from segmentlog.store.files.segments import SegmentFile
from segmentlog.store.retention.archive import Archive
from segmentlog.store.retention.clean import Cleaner, DirectoryRemover
from segmentlog.store.retention.policy import Plan
from segmentlog.store.retention.state import FileId
from segmentlog.store.write.housekeeping import Housekeeping
from support.crash.promises import BrokenPromiseError
from support.crash.retained import ARCHIVE, cut_retained, cut_written, prepare_retained, record, record_written
from support.crash.states import Breadth
from support.scale import Report, scale

pytestmark = pytest.mark.attack

BREADTH = Breadth(exhaustive_bits=scale(2, 4, 10), random_subsets=scale(4, 8, 64))
OPEN_BREADTH = Breadth(exhaustive_bits=0, random_subsets=scale(1, 1, 8), torn=1, per_point=scale(0, 2, 64))
OPEN_EVERY = scale(60, 6, 1)
"""Step from one call at which the power is cut to the next."""
ARCHIVE_BREADTH = Breadth(exhaustive_bits=scale(1, 4, 6), random_subsets=scale(1, 8, 16))


@pytest.mark.scaled
def test_no_step_of_retention_loses_a_message_that_did_not_expire(report: Report) -> None:
    prepared = prepare_retained()
    recording = record(prepared)
    states, shorter = cut_retained(prepared, recording, BREADTH, every=scale(3, 1, 1))
    report("retention", f"{len(recording.ops)} calls, {states} states, {shorter} within the runs")
    assert states >= scale(20, 60, 60)
    assert shorter >= scale(6, 20, 20)


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
    states, shorter = cut_retained(prepared, recording, ARCHIVE_BREADTH, ARCHIVE, every=scale(12, 4, 1))
    report("retention with an archive", f"{len(recording.ops)} calls, {states} states, {shorter} within the runs")
    assert states >= scale(10, 150, 600)
    assert shorter >= scale(5, 100, 400)


def _copies_are_not_synced(patch: Patch) -> None:
    def copy(self: Archive, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        self._make_directories(os.path.dirname(self.path_of(file)))
        made = self._fs.create(self.path_of(file))
        made.write(0, self._fs.read(found.path, 0, found.size))
        made.close()
        yield 0.0

    patch(Archive, "copy", copy)


def _files_go_without_copies(patch: Patch) -> None:
    def copy(self: Archive, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        self._make_directories(os.path.dirname(self.path_of(file)))
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
ARCHIVED = {"copies are durable": _copies_are_not_synced, "each deleted file has a copy": _files_go_without_copies}
OPEN = {"entries are flushed before their segment is deleted": _entries_that_wait_are_not_flushed_first}


@pytest.mark.scaled(quick=2)
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
