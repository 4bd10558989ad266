"""Follow: messages of some topics as a broker appends them.

::

    QueueWatch.look() ──► queues that moved ──► ranges from the position of each ──► scan ──► batches
         ▲                                                                                      │
         └── QueueWatch.wait: the next entry of a queue, poll_s, or close() ◄── nothing waits ◄─┘

A position advances when the caller has taken all batches of its range. After a failure, start from `Follow.positions`:
the messages of unfinished batches are read again.
"""

import logging
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from typing import Final, Self

import pyarrow as pa

from segmentlog.query.cursor import Cursor, State, other_message, queue_gone, skip_or_raise
from segmentlog.query.position import AtTime, ByQueue, Earliest, Position, Resolver, Words, listed
from segmentlog.query.selection import Selection, select
from segmentlog.query.source import StoreSource
from segmentlog.store import (
    ConfigError,
    DataLossError,
    QueueKey,
    QueueRange,
    ScanSpec,
    Snapshot,
)
from segmentlog.store.follow import MessageIdentity, QueueWatch, message_identity

from .arguments import in_api_words, rules_of

_log = logging.getLogger(__name__)

_TASK_BYTES: Final = 8 << 20
_AGAIN: Final = "Follow the topic again, from a new start"
_QUIET_S: Final = 2.0  # without a message, after which all queues are polled less often
_QUIET_POLLS: Final = 4


class Follow:
    """Batches of messages as they are appended: an iterator and a context manager, made by ``Store.follow``.

    One thread iterates; `close` may be called by any. An interrupt (Ctrl-C) ends the waiting at once and leaves
    nothing to clean up.
    """

    def __init__(
        self,
        source: StoreSource,
        wanted: Selection,
        start: Position,
        spec: ScanSpec,
        *,
        poll_s: float = 0.05,
        timeout_s: float | None = None,
    ) -> None:
        self._spec = spec
        self._start = start
        self._poll_s = poll_s
        self._timeout_s = timeout_s
        self._closed = threading.Event()
        snapshot = source.open()
        self._wanted = wanted
        ((_, queues),) = select([snapshot], wanted)
        listed(snapshot, queues, {"start": start})  # an unknown queue is an error here
        self._watch = QueueWatch(snapshot, wanted.wants, self._is_wanted)
        moved = self._watch.look().moved
        resolver = self._resolver()
        self._positions = {key: resolver.start(start, self._watch.bounds(key)) for key in moved}
        self._read_last: dict[QueueKey, MessageIdentity | None] = {
            key: message_identity(self._snapshot, key, position - 1) if position else None
            for key, position in self._positions.items()
        }
        """Last message read of each queue: if its offset has another message, the queue was recreated."""
        self._moved = set(moved)
        self._batches = self._follow()

    @property
    def positions(self) -> dict[QueueKey, int]:
        """The next queue offset per queue; ``start=`` takes it, and then reads these queues only."""
        return dict(self._positions)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration: at once where it waits, else after the batch that is being read. Safe in any thread."""
        self._closed.set()

    @property
    def _snapshot(self) -> Snapshot:
        return self._watch.snapshot

    def _resolver(self) -> Resolver:
        return Resolver(self._snapshot, rules_of(self._spec.on_loss), Words())

    def _is_wanted(self, key: QueueKey) -> bool:
        is_listed = not isinstance(self._start, ByQueue) or self._start.of(self._snapshot.broker_name, key) is not None
        return is_listed and self._wanted.wants_queue(key)

    def _follow(self) -> Generator[pa.RecordBatch, None, None]:
        with in_api_words():
            last = time.monotonic()
            while not self._closed.is_set():
                ranges = [each for key in sorted(self._moved) if (each := self._waiting(key)) is not None]
                self._moved.clear()
                for batch in self._scan(ranges):
                    yield batch
                    if self._closed.is_set():
                        return
                now = time.monotonic()
                if ranges:
                    last = now
                elif (self._timeout_s is not None and now - last >= self._timeout_s) or self._wait(now - last):
                    return
                self._look()

    def _wait(self, quiet_s: float) -> bool:
        """Wait for the next message of a known queue, or until it is time to look; True if `close` was called."""
        limit_s = self._poll_s if quiet_s < _QUIET_S else _QUIET_POLLS * self._poll_s
        return self._watch.wait(limit_s, self._closed.wait)

    def _look(self) -> None:
        """See which queues moved, and refuse those that hold other messages now."""
        sighting = self._watch.look()
        for key in sighting.gone:
            if self._is_expired(key):
                continue
            if position := self._positions.pop(key, 0):
                raise queue_gone(self._snapshot, key, position, fix=_AGAIN)
            self._read_last.pop(key, None)
        for key in sighting.rewritten:
            before, last = self._read_last.get(key), self._positions.get(key, 0) - 1
            if before is not None and other_message(self._snapshot, key, last, before) is not None:
                problem = f"{key} holds another message at offset {last}, the last one that was read: the topic was "
                raise DataLossError(f"{problem}recreated, or the store truncated", path=self._snapshot.path, fix=_AGAIN)
        self._moved |= sighting.moved

    def _is_expired(self, key: QueueKey) -> bool:
        """Return whether a queue is not listed because retention deleted its messages; its next one tells the loss."""
        last = self._read_last.get(key)
        is_deleted = last is None or last.physical_offset < self._snapshot.log.min_offset
        return is_deleted and not self._snapshot.entries.lists_empty

    def _may_have_missed(self) -> bool:
        """Return whether messages that came after the start may have been deleted from a queue that was not seen."""
        if not self._snapshot.entries.lists_empty:
            return self._watch.has_gap
        read = (last.physical_offset for last in self._read_last.values() if last is not None)
        return self._snapshot.log.min_offset > max(read, default=0)

    def _waiting(self, key: QueueKey) -> QueueRange | None:
        """Return the range of unread messages of a queue; None if there are none."""
        bounds = self._watch.bounds(key)
        position = self._positions.get(key)
        if position is None:  # a new queue: all of its messages came after the start, unless that is a later time
            start = self._start if isinstance(self._start, AtTime) else Earliest()
            position = self._positions[key] = self._resolver().start(start, bounds)
            if 0 < position == bounds.min_offset and self._may_have_missed():
                skip_or_raise(Cursor(self._snapshot, bounds, 0).deleted_unseen(), self._spec.on_loss)
        cursor = Cursor(self._snapshot, bounds, position)
        match cursor.state:
            case State.READ | State.UNCONFIRMED:
                return None
            case State.TRUNCATED:
                raise cursor.truncated(_AGAIN)
            case State.DELETED:
                skip_or_raise(cursor.deleted(), self._spec.on_loss)
                position = self._positions[key] = bounds.min_offset
        return QueueRange(key, position, bounds.max_offset) if position < bounds.max_offset else None

    def _scan(self, ranges: Sequence[QueueRange]) -> Iterable[pa.RecordBatch]:
        for task in self._snapshot.plan(ranges, max_bytes=_TASK_BYTES, spec=self._spec):
            # Before the caller gets a batch: the queue may be recreated while the caller works.
            last = {piece.key: message_identity(self._snapshot, piece.key, piece.stop - 1) for piece in task.ranges}
            yield from self._snapshot.scan(task, self._spec)
            self._positions |= {piece.key: piece.stop for piece in task.ranges}
            self._read_last |= last
        for each in ranges:  # offsets at the end that hold no message are in no task
            self._positions[each.key] = each.stop


def checked_seconds(argument: str, value: object) -> float:
    """Check a time span: a number of seconds above 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ConfigError(f"{argument}={value!r} is not a number of seconds above 0", fix="Pass such as 0.05")
    return float(value)
