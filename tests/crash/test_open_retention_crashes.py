"""The power is cut at calls of a store that is written while its files expire."""

import os
from collections.abc import Callable

import pytest

from segmentlog.store.files.segments import SegmentFile
from segmentlog.store.log.appender import LogAppender
from segmentlog.store.queues.writer import QueueWriter
from segmentlog.store.types import QueueKey
from segmentlog.store.write.housekeeping import Housekeeping
from support.crash.promises import BrokenPromiseError
from support.crash.retained_open import cut_written, record_written
from support.crash.states import Breadth
from support.scale import scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

FEW = Breadth(exhaustive_bits=0, random_subsets=scale(1, 1, 8), torn=1, per_point=scale(0, 2, 64))
EVERY = scale(15, 3, 1)

Patch = Callable[[object, str, object], None]


def test_messages_that_did_not_expire_are_kept(report: Callable[[str, object], None]) -> None:
    written = record_written()
    states, later = cut_written(written, FEW, lambda point: point % EVERY == 0)
    report("retention while written", f"{len(written.recording.ops)} calls, {states} states, {later} began later")
    assert states >= 60
    assert later >= 30


def _the_next_segment_goes_too(patch: Patch) -> None:
    real = LogAppender.drop

    def drop(self: LogAppender, segment: SegmentFile) -> None:
        real(self, segment)
        self._fs.unlink(f"{os.path.dirname(segment.path)}/{segment.stop:020d}")

    patch(LogAppender, "drop", drop)


def _entries_that_wait_are_not_flushed_first(patch: Patch) -> None:
    real = Housekeeping.remove

    def remove(self: Housekeeping, file: object, found: SegmentFile) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Housekeeping, "flush_queues", lambda _: None)
            real(self, file, found)  # type: ignore[arg-type]

    patch(Housekeeping, "remove", remove)


def _the_next_queue_file_goes_too(patch: Patch) -> None:
    real = QueueWriter.drop

    def drop(self: QueueWriter, key: QueueKey, segment: SegmentFile) -> None:
        real(self, key, segment)
        self._forget(f"{os.path.dirname(segment.path)}/{segment.stop:020d}")
        self._fs.unlink(f"{os.path.dirname(segment.path)}/{segment.stop:020d}")

    patch(QueueWriter, "drop", drop)


BUGS = (_the_next_segment_goes_too, _entries_that_wait_are_not_flushed_first, _the_next_queue_file_goes_too)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__.strip("_"))
def test_a_planted_bug_is_seen(bug: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as planted:
        bug(planted.setattr)
        with pytest.raises(BrokenPromiseError):  # noqa: PT012 - some bugs already show while the store is written
            try:
                written = record_written()
            except Exception as error:
                raise BrokenPromiseError("written", repr(error)) from error
            planted.undo()
            cut_written(written, FEW, lambda point: point % 15 == 0)
