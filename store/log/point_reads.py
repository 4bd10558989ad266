"""Point reads of the log: the records that begin at given physical offsets.

::

    offsets    17   4100   4900 │ 65536        ascending
    segments   └──────0──────┘  └── 1              one part per segment that holds some of them
                    └──► what begins there, flagged if it is damaged or does not state its own offset

RocketMQ: ``DefaultMessageStore.lookMessageByOffset``, one offset at a time.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ..errors import DataLossError
from ..files.segments import SegmentFile
from ..format.message import Bytes, Ints, Mask, Problem, Records
from .commit_log import CommitLog


def records_at(log: CommitLog, offsets: Ints) -> Iterator[tuple[SegmentFile, Ints, Records]]:
    """Look at the records that begin at physical offsets, segment by segment.

    Parameters
    ----------
    offsets
        (n,) int64, ascending.

    Yields
    ------
    SegmentFile, (k,) int64, Records
        Per segment that holds some of them: which of the offsets, and what begins there. Damaged records, and those
        that do not state their own offset, are flagged. Offsets that no segment holds, or one that retention just
        deleted, are left out.
    """
    for segment, buffer, rows in views_at(log, offsets):
        some = offsets[rows]
        records = Records(buffer, some - segment.base)
        records.flag_problem(records.field("physical_offset") != some, Problem.PHYSICAL_OFFSET)
        yield segment, np.arange(rows.start, rows.stop), records


def views_at(log: CommitLog, offsets: Ints) -> Iterator[tuple[SegmentFile, Bytes, slice]]:
    """Map the segments that hold physical offsets.

    Parameters
    ----------
    offsets
        (n,) int64, ascending.

    Yields
    ------
    SegmentFile, (size,) uint8, slice
        Per segment that holds some of them: its bytes, and which of the offsets. Offsets that no segment holds, or one
        that retention just deleted, are left out.
    """
    holder = log.locate(offsets)
    edges = [0, *(np.flatnonzero(np.diff(holder)) + 1).tolist(), offsets.size]
    for first, last in pairwise(edges):
        if first == last or holder[first] < 0:
            continue
        segment = log.segments[int(holder[first])]
        try:
            buffer = log.view(segment)
        except DataLossError:
            continue
        yield segment, buffer, slice(first, last)


def store_times_at(log: CommitLog, offsets: Ints) -> tuple[Ints, Mask]:
    """Store timestamps of the records at (n,) physical offsets, in any order.

    Returns
    -------
    (n,) int64, (n,) bool
        Milliseconds, and False where no whole record begins or it was deleted.
    """
    order = np.argsort(offsets, kind="stable")
    times, is_read = np.zeros(offsets.size, np.int64), np.zeros(offsets.size, np.bool_)
    for _, rows, records in records_at(log, offsets[order]):
        times[order[rows]] = records.field("store_timestamp")
        is_read[order[rows]] = records.problem == Problem.OK
    return times, is_read
