"""Queue offsets of an open store: the next one of each queue, assigned under the put lock.

::

    number of queue     0    1    2        QueueNumbers
    next queue offset  [17] [ 0] [903]

    assign      rows of 0, 2, 0   ──► 17, 903, 18        set ──► [19] [ 0] [904]     after the write
    continued   records that state 17, 903, 18           the same, checked

RocketMQ: ``QueueOffsetOperator``.
"""

from array import array
from collections.abc import Mapping

import numpy as np

from ..dispatch.rules import DispatchedRecords
from ..errors import FormatError
from ..format.message import Ints, Mask
from ..queues.keys import QueueNumbers
from ..types import QueueKey


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

    def next_offset(self, key: QueueKey) -> int:
        """Return the queue offset of the next message of a queue."""
        number = self.numbers.find(key)
        return self.nexts[number] if number is not None and number < len(self.nexts) else 0

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

    def continued(self, known: DispatchedRecords, physical: int) -> Ints:
        """Check that the queue offsets that records state continue their queues.

        Parameters
        ----------
        known
            Entries of the records.
        physical
            Physical offset of the first record, for errors.

        Returns
        -------
        (q,) int64
            Next queue offset of each of ``known.queues``, to be passed to `set`.

        Raises
        ------
        FormatError
            If one leaves out or repeats a queue offset.
        """
        if not known.queues.size:
            return known.queues
        self._make_room(int(known.queues.max()))
        order = np.argsort(known.queue_of, kind="stable")
        queue_of, stated = known.queue_of[order], known.queue_offset[order]
        held = np.bincount(queue_of, minlength=known.queues.size)
        begins = np.cumsum(held) - held
        nexts = self._view()[known.queues]
        firsts = np.where(nexts > 0, nexts, stated[begins])  # a queue may begin later than 0: its first ones expired
        expected = firsts[queue_of] + np.arange(queue_of.size) - begins[queue_of]
        if (stated != expected).any():
            row = int((stated != expected).argmax())
            key = self.numbers.key(int(known.queues[queue_of[row]]))
            raise FormatError(
                f"a record of queue {key} states queue offset {int(stated[row])}, and the queue continues at "
                f"{int(expected[row])}",
                offset=physical,
                fix="Replicate from a store whose queue offsets have no gaps; RocketMQ 5.0 to 5.1.0 may leave some out",
            )
        return firsts + held

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
