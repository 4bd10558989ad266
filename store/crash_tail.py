"""The end of a store that a crash left: messages that no queue names yet, and a last record that may be torn.

::

    CommitLog     … [A7][B3][A8][B4][A9][##        0000…
                         ▲        ▲       ▲
    queues name up to  ──┘        │       └ torn: neither whole nor followed by a whole record; it was never there
    this part only the log knows ─┘

A broker that starts again dispatches the middle part and truncates the torn one (``CommitLog.recoverAbnormally``). A
reader of the directory as it lies must show no less. Damage with whole records behind it is not torn: that is damage,
and stays visible.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .commit_log import CommitLog
from .consume_queue import ConsumeQueue
from .derive import BURNT_OFFSETS_MAX, DerivedQueue, derive_queues
from .format.consume_queue import is_plausible
from .format.message import Problem
from .types import QueueKey

_log = logging.getLogger(__name__)

_LAST_ENTRIES = 4096


class CrashTail(NamedTuple):
    """What a crash left behind the end of the queues.

    Attributes
    ----------
    log_end
        Physical offset where the last whole record ends.
    queues
        Entries that the ConsumeQueues lack.
    ends
        One past the last message of each queue, by the log, where it has any in the part that was walked.
    """

    log_end: int
    queues: dict[QueueKey, DerivedQueue]
    ends: dict[QueueKey, int]

    def trim(self, queue: ConsumeQueue, end: int) -> int:
        """One past the last entry below ``end`` that does not name a torn record."""
        while end > queue.first:
            start = max(queue.first, end - _LAST_ENTRIES)
            entries = queue.entries(start, end)
            # Written in order, so torn ones are last; an entry that makes no sense is not for this to judge.
            inside = np.flatnonzero(~is_plausible(entries) | (entries["physical_offset"] < self.log_end))
            if inside.size:
                return start + int(inside[-1]) + 1
            end = start
        return queue.first


def find_crash_tail(log: CommitLog, ends: Mapping[ConsumeQueue, int], stop: int) -> CrashTail:
    """Look at the end of the log of a store that nobody owns and that was not shut down.

    At most the segment in which the queues end, the one before, and those behind are walked: what a crash can tear lies
    there, since older pages were written back long ago.

    Parameters
    ----------
    log
        Its CommitLog.
    ends
        All its queues, with one past the last entry that is not zero.
    stop
        Physical offset from which on nothing counts: a batch that was not finished.
    """
    named = log.min_offset
    for queue, end in ends.items():
        entries = queue.entries(max(queue.first, end - _LAST_ENTRIES), end)
        entries = entries[is_plausible(entries)]
        inside = entries[entries["physical_offset"] + entries["size"] <= log.stop]
        if inside.size:
            named = max(named, int((inside["physical_offset"] + inside["size"]).max()))
    holder = max(int(log.locate(np.array([max(named - 1, 0)]))[0]), 0)
    begin = log.segments[max(holder - 1, 0)].base if log.segments else 0
    log_end = begin
    for found in log.walk(begin, stop):
        log.check_crcs(found.segment, found.records)
        whole = found.records.positions[found.records.problem == Problem.OK]
        if whole.size:
            last = log.record_at(found.segment.base + int(whole[-1]))
            assert last is not None
            log_end = found.segment.base + int(whole[-1]) + last.record.total_size
    extra: dict[QueueKey, DerivedQueue] = {}
    true_ends: dict[QueueKey, int] = {}
    known = {queue.key: end for queue, end in ends.items()}
    for key, derived in derive_queues(log, begin, log_end).items():
        behind = derived.queue_offset >= known.get(key, 0)
        if key in known:  # an offset that is damaged must not stretch the queue
            behind &= derived.queue_offset <= known[key] + log.records_max + BURNT_OFFSETS_MAX
        if derived.queue_offset.size:
            true_ends[key] = int(derived.queue_offset[-1]) + 1
        if behind.any():
            extra[key] = DerivedQueue(*(column[behind] for column in derived))
    if extra:
        _log.warning(
            "a crash left %d messages of %d queues in the CommitLog that no ConsumeQueue names; they are read as well",
            sum(derived.size.size for derived in extra.values()),
            len(extra),
        )
    return CrashTail(log_end, extra, true_ends)
