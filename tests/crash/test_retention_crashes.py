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
from support.crash.promises import BrokenPromiseError
from support.crash.retained import ARCHIVE, cut_retained, prepare_retained, record
from support.crash.states import Breadth
from support.scale import scale

pytestmark = pytest.mark.attack

BREADTH = Breadth(exhaustive_bits=scale(4, 4, 10), random_subsets=scale(8, 8, 64))
ARCHIVE_BREADTH = Breadth(exhaustive_bits=scale(1, 4, 6), random_subsets=scale(1, 8, 16))


@pytest.mark.scaled
def test_no_step_of_retention_loses_a_message_that_did_not_expire(report: Callable[[str, object], None]) -> None:
    prepared = prepare_retained()
    recording = record(prepared)
    states, shorter = cut_retained(prepared, recording, BREADTH)
    report("retention", f"{len(recording.ops)} calls, {states} states, {shorter} within the runs")
    assert states >= 60
    assert shorter >= 20


Patch = Callable[[object, str, object], None]


def _no_directory_is_synced(patch: Patch) -> None:
    def remove(self: DirectoryRemover, file: FileId, found: SegmentFile) -> None:
        self._fs.unlink(found.path)

    patch(DirectoryRemover, "remove", remove)


def _the_newest_of_a_run_goes_first(patch: Patch) -> None:
    real = Cleaner.steps

    def steps(self: Cleaner, plan: Plan, *rest: object) -> object:
        return real(self, replace(plan, deletions=plan.deletions[::-1]), *rest)  # type: ignore[arg-type]

    patch(Cleaner, "steps", steps)


def _files_are_emptied_and_stay(patch: Patch) -> None:
    def remove(self: DirectoryRemover, file: FileId, found: SegmentFile) -> None:
        opened = self._fs.open(found.path)
        opened.write(0, bytes(found.size))
        opened.sync()
        opened.close()

    patch(DirectoryRemover, "remove", remove)


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


BUGS = (
    _no_directory_is_synced,
    _the_newest_of_a_run_goes_first,
    _files_are_emptied_and_stay,
    _history_comes_last,
    _one_segment_too_many,
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__.strip("_"))
def test_a_planted_bug_is_seen(bug: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare_retained()
    with monkeypatch.context() as planted:
        bug(planted.setattr)
        recording = record(prepared)
    with pytest.raises(BrokenPromiseError):
        cut_retained(prepared, recording, BREADTH)


@pytest.mark.scaled
def test_no_step_of_archiving_loses_anything(report: Callable[[str, object], None]) -> None:
    prepared = prepare_retained()
    recording = record(prepared, ARCHIVE, scale(1, 3, 3))
    states, shorter = cut_retained(prepared, recording, ARCHIVE_BREADTH, ARCHIVE, every=scale(3, 1, 1))
    report("retention with an archive", f"{len(recording.ops)} calls, {states} states, {shorter} within the runs")
    assert states >= scale(50, 600, 600)
    assert shorter >= scale(25, 400, 400)


def _copies_are_not_synced(patch: Patch) -> None:
    def copy(self: Archive, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        self._make_directories(os.path.dirname(self.path_of(file)))
        made = self._fs.create(self.path_of(file))
        made.write(0, self._fs.read(found.path, 0, found.size))
        made.close()
        yield 0.0

    patch(Archive, "copy", copy)


def _names_of_copies_are_not_synced(patch: Patch) -> None:
    real = Archive.copy

    def copy(self: Archive, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        self._durable.add(os.path.dirname(self.path_of(file)))
        fs = self._fs
        if fs.stamp(os.path.dirname(self.path_of(file))) is None:
            fs.make_dir(os.path.dirname(self.path_of(file)))
        with pytest.MonkeyPatch.context() as within:
            within.setattr(fs, "sync_dir", lambda _: None)
            yield from real(self, file, found)

    patch(Archive, "copy", copy)


def _a_whole_file_is_believed(patch: Patch) -> None:
    def is_copy(self: Archive, found: SegmentFile, path: str) -> Generator[float, None, bool]:
        yield 0.0
        return self._fs.size(path) == found.size

    def copy(self: Archive, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        self._make_directories(os.path.dirname(self.path_of(file)))
        target = self.path_of(file)
        if (yield from self._is_copy(found, target)):
            return
        made = self._fs.create(target)
        made.extend(found.size)
        yield 0.0
        made.write(0, self._fs.read(found.path, 0, found.size))
        made.sync()
        made.close()
        self._fs.sync_dir(os.path.dirname(target))

    patch(Archive, "_is_copy", is_copy)
    patch(Archive, "copy", copy)


def _files_go_without_copies(patch: Patch) -> None:
    def copy(self: Archive, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        self._make_directories(os.path.dirname(self.path_of(file)))
        yield 0.0

    patch(Archive, "copy", copy)


ARCHIVE_BUGS = (
    _copies_are_not_synced,
    _names_of_copies_are_not_synced,
    _a_whole_file_is_believed,
    _files_go_without_copies,
)


@pytest.mark.parametrize("bug", ARCHIVE_BUGS, ids=lambda bug: bug.__name__.strip("_"))
def test_a_planted_bug_of_archiving_is_seen(bug: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare_retained()
    with monkeypatch.context() as planted:
        bug(planted.setattr)
        recording = record(prepared, ARCHIVE)
        with pytest.raises(BrokenPromiseError):
            cut_retained(prepared, recording, BREADTH, ARCHIVE)
