"""Cursor: a queue compared with the offset that a scan, a follower or a stream has reached in it.

::

    reached 40    queue [25 … 70)                          Cursor.state   WAITING       40 to 69 wait
                        [25 … 40)                                         READ
                        [55 … 70)                                         DELETED       retention was faster: 40 to 54
                        [25 … 30), up to 70 not confirmed                 UNCONFIRMED   after a crash of the master
                        [ 0 … 30)                                         TRUNCATED     or recreated
    last read 39 at 81920, 12:00:00 ── other_message ── 39 at 4096, 14:30:00    recreated

Errors are made here, and raised or logged by the readers, as ``on_loss`` or ``failOnDataLoss`` says.
"""

import logging
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from segmentlog.store import (
    ConfigError,
    DataLossError,
    OnLoss,
    QueueBounds,
    QueueKey,
    QueueRange,
    Remedy,
    Snapshot,
    UnconfirmedError,
)
from segmentlog.store.follow import MessageIdentity, deletion_note, message_identity

_log = logging.getLogger(__name__)


class State(Enum):
    """State of a queue for a reader."""

    READ = auto()
    WAITING = auto()
    DELETED = auto()
    UNCONFIRMED = auto()
    """Messages before the offset are stored, and wait again: for replicas, for the agreement of a DLedger group, or for
    a writer that dispatches them after a crash."""
    TRUNCATED = auto()


class Cursor(NamedTuple):
    """An offset that a reader has reached in a queue, and the bounds of the queue now."""

    snapshot: Snapshot
    bounds: QueueBounds
    position: int

    @property
    def state(self) -> State:
        """State of the queue."""
        if self.position < self.bounds.min_offset:
            return State.DELETED
        if self.position <= self.bounds.max_offset:
            return State.READ if self.position == self.bounds.max_offset else State.WAITING
        return State.UNCONFIRMED if self._is_held() else State.TRUNCATED

    def _is_held(self) -> bool:
        return self.snapshot.holds_back and self.position <= self.snapshot.held_end(self.bounds.key)

    def deleted(self) -> DataLossError:
        """Make the error for messages that were deleted before they were read."""
        begin = self.bounds.min_offset
        lost = f"{begin - self.position} messages of {self.bounds.key}, offsets {self.position} to {begin - 1}"
        return self.lost(f"{lost}, were deleted before they were read, most likely by the broker's retention")

    def deleted_unseen(self) -> DataLossError:
        """Make the error for the first messages of a queue that were deleted before the queue was seen."""
        begin = self.bounds.min_offset
        first = f"{begin} messages of {self.bounds.key}, offsets 0 to {begin - 1}"
        return self.lost(f"{first}, were deleted before the queue was first seen, most likely by retention")

    def lost(self, problem: str) -> DataLossError:
        """Make an error for messages that retention deleted too early, with its last deletion."""
        note = deletion_note(self.snapshot.path)
        fix = "Keep messages longer than the reader can fall behind, or read faster"
        remedies = [Remedy.SKIP_LOST, *note.remedies]
        return DataLossError(f"{problem}{note.text}", path=self.snapshot.path, fix=fix, remedies=remedies)

    def truncated(self, fix: str) -> DataLossError:
        """Make the error for a queue that ends before the offset."""
        problem = (
            f"{self.bounds.key} now ends at offset {self.bounds.max_offset}, before offset {self.position}, up to "
            "which it was read: the topic was deleted or recreated, or the store was truncated"
        )
        return DataLossError(problem, path=self.snapshot.path, fix=fix)


def queue_gone(snapshot: Snapshot, key: QueueKey, position: int, *, fix: str) -> DataLossError:
    """Make the error for a queue that no longer exists."""
    problem = f"{key} was read up to offset {position}, and is gone now: messages after this offset, if any, are lost"
    return DataLossError(problem, path=snapshot.path, fix=fix)


def other_message(snapshot: Snapshot, key: QueueKey, offset: int, known: MessageIdentity) -> MessageIdentity | None:
    """Return the message at a queue offset if it is another than the known one: the topic was recreated."""
    found = message_identity(snapshot, key, offset)
    return None if found == known else found


def remaining(
    snapshot: Snapshot, wanted: QueueRange, bounds: QueueBounds
) -> tuple[QueueRange | None, DataLossError | None]:
    """Return the part of a planned range that a queue still holds, and the error for the rest; None for nothing.

    `UnconfirmedError` if the rest is stored, and not confirmed any more.
    """
    start, stop = max(wanted.start, bounds.min_offset), min(wanted.stop, bounds.max_offset)
    held = QueueRange(wanted.key, start, stop) if start < stop else None
    gone = len(wanted) - (0 if held is None else len(held))
    if not gone:
        return held, None
    if Cursor(snapshot, bounds, wanted.stop).state is State.UNCONFIRMED:
        seen, fix = "confirmed", "Start all brokers of the group, and read again: nothing is lost"
        if not snapshot.awaits_others:
            seen, fix = "there", "Read again when its writer has recovered: nothing is lost"
        raise UnconfirmedError(
            f"{wanted} was {seen} when it was planned, and is {seen} only up to {bounds.max_offset} since a crash, "
            "restart or failover",
            path=snapshot.path,
            fix=fix,
        )
    note = deletion_note(snapshot.path)
    holds = f"the queue holds [{bounds.min_offset}, {bounds.max_offset}) now"
    problem = f"{gone} messages of {wanted} are gone: {holds}{note.text}"
    return held, DataLossError(problem, path=snapshot.path, remedies=[Remedy.SKIP_LOST, *note.remedies])


def held_ranges(snapshot: Snapshot, ranges: Sequence[QueueRange], on_loss: OnLoss) -> list[QueueRange]:
    """Return the parts of planned ranges that the queues still hold; the rest is raised or logged."""
    found = []
    for wanted, bounds in zip(ranges, snapshot.bounds_of([each.key for each in ranges]), strict=True):
        held, error = remaining(snapshot, wanted, bounds)
        if error is not None:
            skip_or_raise(error, on_loss)
        if held is not None:
            found.append(held)
    return found


def by_queue(ranges: Iterable[QueueRange]) -> dict[QueueKey, list[QueueRange]]:
    """Group ranges by queue, in their order."""
    found: dict[QueueKey, list[QueueRange]] = {}
    for each in ranges:
        found.setdefault(each.key, []).append(each)
    return found


def check_some(ranges: Iterable[QueueRange]) -> None:
    """Raise `ConfigError` if ranges hold no offset."""
    if not any(map(len, ranges)):
        fix = "`segmentlog queues STORE` shows first and last offsets"
        raise ConfigError("no messages found between start and end", fix=fix)


def skip_or_raise(error: DataLossError, on_loss: OnLoss) -> None:
    """Raise the error, or log it and continue."""
    if on_loss is OnLoss.FAIL:
        raise error
    _log.warning("%s", error.described)
