"""Entries of short ranges: those of thousands of queues in one array, each for one read of one file.

::

    ranges    T/0 [0, 3)   T/1 [0, 2)   T/2 [4, 6)   T/3 [0, 90000)
    read      e0 e1 e2 +   e0 ## +      e4 e5 +      long                  + the entry after the range
    yields    Together(T/0)  1            Together(T/2)  3                   ## makes no sense: read by itself

A range that is *sound* holds an entry for each of its messages, each makes sense, and none repeats the next one. The
check is made once for all entries. Every other range is left to `queue_entries.range_blocks`, which heals and reports.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ..format.consume_queue import Entries, decode, is_plausible, repeats_next, some
from ..format.message import Ints
from ..format.naming import SCHEDULE_TOPIC
from ..queues.consume_queues import ConsumeQueues, Span
from .tasks import PlannedRange

SHORT_ROWS_MAX: Final = 1 << 16
"""Messages of a range up to which it is read together with others, and about as many are read at once."""


class Together(NamedTuple):
    """Entries of consecutive ranges of a task, all of them sound.

    Attributes
    ----------
    range_index, queue_offset
        (n,) int64 of each message, ascending by range and then by queue offset.
    entries
        (n,) array of ``format.consume_queue.NATIVE``.
    """

    range_index: Ints
    queue_offset: Ints
    entries: Entries


def together(
    queues: ConsumeQueues, ranges: Sequence[PlannedRange], rows_max: int = SHORT_ROWS_MAX
) -> Iterator[Together | int]:
    """Read the short ranges of a task, many at once.

    Parameters
    ----------
    queues
        ConsumeQueues of the store.
    ranges
        All ranges of the task.
    rows_max
        No more ranges are read together from so many messages on.

    Yields
    ------
    Together or int
        In the order of the ranges: entries of sound ranges, or the index of a range that has to be read by itself.
    """
    at = 0
    while at < len(ranges):
        stop, rows = at, 0
        while stop < len(ranges) and rows < rows_max and _is_short(ranges[stop]):
            rows += ranges[stop].rows
            stop += 1
        if stop == at:
            yield at
            at += 1
        else:
            yield from _read(queues, ranges, at, stop)
            at = stop


def _is_short(planned: PlannedRange) -> bool:
    # Tags codes of delayed messages are times: no other topic is matched as theirs is.
    rows = planned.stop - planned.start
    return planned.base is not None and planned.rows == rows <= SHORT_ROWS_MAX and planned.key.topic != SCHEDULE_TOPIC


def _read(queues: ConsumeQueues, ranges: Sequence[PlannedRange], at: int, stop: int) -> Iterator[Together | int]:
    """Read ranges ``[at, stop)``, and yield stretches of sound ones between the others."""
    data = queues.read(
        [Span(key, start, end + 1, base) for key, start, end, _, _, base in ranges[at:stop] if base is not None]
    )
    read = [number for number, piece in enumerate(data, at) if piece is not None]
    if read:
        index = np.array(read)
        starts = np.array([ranges[number].start for number in read])
        lengths = np.array([ranges[number].rows for number in read])
        entries = decode(b"".join(piece for piece in data if piece is not None))
        after = np.cumsum(lengths + 1) - 1  # the entry after each range
        unusual = ~is_plausible(entries)
        unusual[:-1] |= repeats_next(entries)
        unusual[after] = False
        real = np.ones(entries.size, np.bool_)
        real[after] = False
        sound = ~np.logical_or.reduceat(unusual, after - lengths)
        ends = np.cumsum(lengths)
        offsets = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
        all_of_them = Together(np.repeat(index, lengths), offsets, some(entries, real))
        read = index[sound].tolist()
        if len(read) == stop - at:
            yield all_of_them
            return
        firsts = np.searchsorted(all_of_them.range_index, np.arange(at, stop + 1)).tolist()
    alone = sorted({*range(at, stop)} - {*read})
    for before, number in pairwise([at - 1, *alone, stop]):
        if number - before > 1:
            rows = slice(firsts[before + 1 - at], firsts[number - at])
            yield Together(all_of_them.range_index[rows], all_of_them.queue_offset[rows], all_of_them.entries[rows])
        if number < stop:
            yield number
