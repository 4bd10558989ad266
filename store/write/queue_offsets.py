"""Queue offsets of an open store: the next one of each queue, assigned under the put lock.

::

    number of queue     0    1    2        QueueNumbers
    next queue offset  [17] [ 0] [903]

    assign      rows of 0, 2, 0   ──► 17, 903, 18        set ──► [19] [ 0] [904]     after the write
    followed    records that state 17, 903, 18           the same; 17, 905, 18: a number was left out, closed to 903

RocketMQ: ``QueueOffsetOperator``.
"""

import logging
from array import array
from collections.abc import Mapping

import numpy as np

from ..dispatch.rules import DispatchedRecords
from ..format.message import Ints, Mask
from ..queues.keys import QueueNumbers
from ..types import QueueKey

_log = logging.getLogger(__name__)


class QueueOffsets:
    """Next queue offset of each queue. Not thread-safe: used under the put lock.

    Parameters
    ----------
    numbers
        Numbers of the queues.
    ends
        One past the last entry of each queue that has entries.
    """

    def __init__(self, numbers: QueueNumbers, ends: Mapping[QueueKey, int]) -> None:
        self.numbers = numbers
        """Numbers of the queues."""
        self.nexts = array("q")
        """Next queue offset by number of a queue."""
        for key, end in ends.items():
            self.nexts[self.number_of(key)] = end

    def snapshot(self) -> Ints:
        """Return a copy of the next queue offsets, by number of a queue, for `spans_since`."""
        return self._view().copy()

    def spans_since(self, before: Ints) -> list[tuple[QueueKey, int, int]]:
        """Return the queues that got messages since a `snapshot`, with the first queue offset and the next one now."""
        firsts = np.zeros(len(self.nexts), np.int64)
        firsts[: before.size] = before
        nexts = self.snapshot()
        longer = np.flatnonzero(nexts > firsts)
        spans = zip(longer.tolist(), firsts[longer].tolist(), nexts[longer].tolist(), strict=True)
        return [(self.numbers.key(number), first, stop) for number, first, stop in spans]

    def number_of(self, key: QueueKey) -> int:
        """Return the number of a queue, for which `nexts` has a place."""
        number = self.numbers.of_one(key)
        self._make_room(number)
        return number

    def assign(self, numbers: Ints, queue_of: Ints, counts: Mask) -> tuple[Ints, Ints]:
        """Assign queue offsets to rows.

        Parameters
        ----------
        numbers
            (q,) int64, numbers of the distinct queues.
        queue_of
            (n,) int64, index into ``numbers`` per row.
        counts
            (n,) bool, whether the row takes a queue offset; prepared and rolled back messages do not, and get 0.

        Returns
        -------
        (n,) int64, (q,) int64
            Queue offset of each row, and next queue offset of each queue, to be passed to `set`.
        """
        self._make_room(int(numbers.max()))
        firsts = self._view()[numbers]
        if numbers.size == 1 and counts.all():
            return firsts[0] + np.arange(queue_of.size), firsts + queue_of.size
        offsets = np.zeros(queue_of.size, np.int64)
        counted = np.flatnonzero(counts)
        small = np.uint16 if numbers.size <= 1 << 16 else np.int64  # numpy sorts numbers of 16 bits by counting them
        rows = counted[np.argsort(queue_of[counted].astype(small), kind="stable")]
        held = np.bincount(queue_of[counted], minlength=numbers.size)
        begins = np.cumsum(held) - held
        offsets[rows] = np.arange(rows.size) - begins[queue_of[rows]] + firsts[queue_of[rows]]
        return offsets, firsts + held

    def followed(self, known: DispatchedRecords) -> tuple[DispatchedRecords, Ints]:
        """Place the records of another log in their queues, as RocketMQ's slaves do.

        A record takes the queue offset that it states. Where the other log left some out, as 5.0 to 5.1.0 do when a put
        fails, it takes the next free one. A record whose queue offset is taken gets no entry. A queue without entries
        begins where its first record says: the ones before it expired.

        Parameters
        ----------
        known
            Entries of the records, with the queue offsets that they state.

        Returns
        -------
        DispatchedRecords, (q,) int64
            The entries with the queue offsets that they take, and the next queue offset of each of their queues, to be
            passed to `set`.
        """
        if not known.queues.size:
            return known, known.queues
        self._make_room(int(known.queues.max()))
        order = np.argsort(known.queue_of, kind="stable")
        queue_of, stated = known.queue_of[order], known.queue_offset[order]
        held = np.bincount(queue_of, minlength=known.queues.size)
        begins = np.cumsum(held) - held
        nexts = self._view()[known.queues]
        firsts = np.where(nexts > 0, nexts, stated[begins])
        expected = firsts[queue_of] + np.arange(queue_of.size) - begins[queue_of]
        if (stated >= expected).all():  # all of them equal, or some left out before
            placed = np.empty_like(expected)
            placed[order] = expected
            return known._replace(queue_offset=placed), firsts + held
        return self._without_taken(known, firsts)

    def _without_taken(self, known: DispatchedRecords, nexts: Ints) -> tuple[DispatchedRecords, Ints]:
        """Leave out the entries of records whose queue offset is taken: rare, and in no log of a healthy broker."""
        following = nexts.tolist()
        rows, placed = [], []
        for row, (queue, stated) in enumerate(zip(known.queue_of.tolist(), known.queue_offset.tolist(), strict=True)):
            if stated >= following[queue]:
                rows.append(row)
                placed.append(following[queue])
                following[queue] += 1
        key = self.numbers.key(int(known.queues[0]))
        _log.warning(
            "%d replicated records of queue %s and others get no queue entry: their queue offsets are taken",
            known.queue_of.size - len(rows),
            key,
        )
        kept = known._replace(
            queue_of=known.queue_of[rows],
            queue_offset=np.array(placed, np.int64),
            entries=known.entries[rows],
        )
        return kept, np.array(following, np.int64)

    def set(self, numbers: Ints, following: Ints) -> None:
        """Set the next queue offsets of (q,) queues, once their records are written."""
        if numbers.size:
            self._view()[numbers] = following

    def _view(self) -> Ints:
        """View the next queue offsets of all queues; dropped at once, since an array that is viewed cannot grow."""
        return np.frombuffer(self.nexts, np.int64)

    def _make_room(self, number: int) -> None:
        """Make room for the number of a queue."""
        if number >= len(self.nexts):
            self.nexts.extend([0] * (max(number + 1, 2 * len(self.nexts)) - len(self.nexts)))
