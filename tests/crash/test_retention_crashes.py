"""The power is cut at every call of retention: no gap, no message lost that did not expire, and deletion goes on."""

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from segmentlog.store.files.segments import SegmentFile
from segmentlog.store.retention.clean import Cleaner, DirectoryRemover
from segmentlog.store.retention.history import Deleted, History
from segmentlog.store.retention.policy import Plan
from segmentlog.store.retention.state import FileId
from support.crash.promises import BrokenPromiseError
from support.crash.retained import cut_retained, prepare_retained, record
from support.crash.states import Breadth
from support.scale import scale

pytestmark = pytest.mark.attack

BREADTH = Breadth(exhaustive_bits=scale(4, 4, 10), random_subsets=scale(8, 8, 64))


@pytest.mark.scaled
def test_no_step_loses_what_did_not_expire(report: Callable[[str, object], None]) -> None:
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
