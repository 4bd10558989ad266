"""Undispatched tail: records at the end of a crashed store that no queue names yet, and a last one that may be torn.

::

    CommitLog     … [A7][B3][A8][B4][A9][##        0000…
                     ▲       ▲       ▲   ▲
        durable point│       │       │   └ log_end: the bytes after it are not a whole record
                     │       └───────┴ lost by queue A: its entry never got onto the device
                     └ before it all entries are on the device

    queue A       … [7][ ][9]     ends[A] = 10, queues[A] = records of 8 and 9, from the log

A broker that starts again dispatches such records again and truncates the torn one (``CommitLog.recoverAbnormally``). A
reader of the directory must show no less. A power cut takes entries in any order, so the newest entry says nothing of
the entries before it. In a store of ours that no other process wrote since, the search begins at the durable point.
Elsewhere it begins where a broker's recovery does: by the checkpoint, or one segment before the last record that has an
entry. It goes back further as long as records without an entry turn up. Damage with whole records after it is not torn:
it is damage, and stays visible.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..directory.own_state import OwnState
from ..dispatch.derive import BURNT_OFFSETS_MAX, NO_ENTRIES, DerivedQueue, derive_queues
from ..files.notices import warn_once
from ..format.consume_queue import LMQ_PREFIX, Entries, is_pad, is_plausible
from ..format.message import Mask
from ..log.commit_log import CommitLog
from ..log.log_end import LogState, examine_log
from ..queues.consume_queue import ConsumeQueue
from ..types import QueueKey

_log = logging.getLogger(__name__)

_LAST_ENTRIES = 4096


class UndispatchedTail(NamedTuple):
    """Records that a crash left after the end of the queues."""

    log_end: int  # physical offset where the last record ends
    # of queues that lack entries: all records from the first one without an entry on
    queues: dict[QueueKey, DerivedQueue]
    ends: dict[QueueKey, int]  # one past the last message of each queue
    is_exact: bool  # False if a queue may end in implausible entries: damage, or torn ones


class _LogEnd(NamedTuple):
    """End of the log, and whether the examined part is undamaged."""

    at: int
    is_whole: bool


def log_end_after_crash(log: CommitLog, own: OwnState, data_stop: int) -> int:
    """Physical offset of the end of the last record before ``data_stop``, in a store that a crash left."""
    begin = _begin_of_ours(log, own)
    if begin is None:  # older pages were written back long ago
        begin = log.segments[-2:][0].base if log.segments else 0
    return _log_end(log, own, begin, data_stop).at


def find_undispatched_tail(
    log: CommitLog,
    ends: Mapping[ConsumeQueue, int],
    own: OwnState,
    *,
    data_stop: int,
    hidden_from: int | None,
) -> UndispatchedTail:
    """Examine the end of the log of a store that no process owns and that was not closed.

    ``ends`` has one past the last non-zero entry of every queue, read after ``own``. Records from ``data_stop`` or
    ``hidden_from`` on, where an unfinished batch begins, do not count.
    """
    begin = _begin_of_ours(log, own)
    if begin is None:
        begin = _begin_by_entries(log, ends, own)
    end = _log_end(log, own, begin, data_stop)
    log_end = end.at if hidden_from is None else min(end.at, hidden_from)
    derived_queues = derive_queues(log, begin, log_end)
    extra: dict[QueueKey, DerivedQueue] = {}
    true_ends: dict[QueueKey, int] = {}
    for queue, data_end in ends.items():
        derived = derived_queues.pop(queue.key, NO_ENTRIES)
        # an offset that is damaged must not stretch the queue
        possible = derived.queue_offset <= data_end + log.records_max + BURNT_OFFSETS_MAX
        derived = _rows(derived, possible)
        kept = _end_below(queue, min(begin, log_end), data_end, None if own.crash_point is None else log)
        is_told = end.is_whole and not queue.key.topic.startswith(LMQ_PREFIX)
        missing, named = _compare(queue, kept, data_end, derived, None if is_told else log_end)
        true_ends[queue.key] = named
        if missing.any():
            extra[queue.key] = _rows(derived, np.arange(missing.size) >= missing.argmax())
            true_ends[queue.key] = max(named, int(derived.queue_offset[-1]) + 1)
    for key, derived in derived_queues.items():  # of no queue that is there
        extra[key] = derived
        true_ends[key] = int(derived.queue_offset[-1]) + 1
    if extra:
        warn_once(
            _log,
            log.directories[0],
            "%s: a crash left %d queues without all of their entries: their last %d messages are read from the log",
            log.directories[0],
            len(extra),
            sum(derived.size.size for derived in extra.values()),
        )
    return UndispatchedTail(log_end, extra, true_ends, end.is_whole)


def _compare(
    queue: ConsumeQueue, kept: int, data_end: int, derived: DerivedQueue, log_end: int | None
) -> tuple[Mask, int]:
    """Return which derived records lack an entry, and one past the last entry that counts, of those from ``kept`` on.

    Without ``log_end``, the records are all that have entries; else entries before that physical offset count as well.
    """
    if log_end is None:
        # One entry for each record, in their order: a torn one may name another record of the queue.
        entries = queue.entries(kept, kept + derived.size.size)
        # By size as well: zeros point to the first record of a log.
        missing = (entries["physical_offset"] != derived.physical_offset) | (entries["size"] != derived.size)
        return missing, kept + derived.size.size
    entries = queue.entries(kept, data_end)
    # An entry that makes no sense is not for this to judge.
    counts = np.flatnonzero(~is_plausible(entries) | (entries["physical_offset"] < log_end))
    end = kept + int(counts[-1]) + 1 if counts.size else kept
    return ~np.isin(derived.physical_offset, entries["physical_offset"][is_plausible(entries)]), end


def _begin_of_ours(log: CommitLog, own: OwnState) -> int | None:
    """Physical offset before which all records have their entries on the device; None if that is unknown."""
    return None if own.crash_point is None else max(own.crash_point.queues, log.min_offset)


def _begin_by_entries(log: CommitLog, ends: Mapping[ConsumeQueue, int], own: OwnState) -> int:
    """The segment from which on records may lack an entry, of a store without a durable point that can be trusted."""
    named = log.min_offset
    for queue, end in ends.items():
        entries = queue.entries(max(queue.first, end - _LAST_ENTRIES), end)
        entries = entries[is_plausible(entries)]
        inside = entries[entries["physical_offset"] + entries["size"] <= log.stop]
        if inside.size:
            named = max(named, int((inside["physical_offset"] + inside["size"]).max()))
    holder = max(int(log.locate(np.array([max(named - 1, 0)]))[0]), 0)
    at = max(holder - 1, 0)
    synced_ms = own.checkpoint.min_timestamp
    while at > 0 and synced_ms and (log.store_time_at(log.segments[at].base) or synced_ms + 1) > synced_ms:
        at -= 1
    while at > 0 and not _all_have_entries(log, at, ends):
        at -= 1
    return log.segments[at].base if log.segments else 0


def _all_have_entries(log: CommitLog, at: int, ends: Mapping[ConsumeQueue, int]) -> bool:
    """Return whether the queues name all records of one segment."""
    segment = log.segments[at]
    queues = {queue.key: queue for queue in ends}
    for key, derived in derive_queues(log, segment.base, segment.stop).items():
        queue = queues.get(key)
        if queue is None:
            return False
        first = queue.end_before(segment.base, ends[queue])
        entries = queue.entries(first, min(first + derived.size.size, ends[queue]))
        if not np.isin(derived.physical_offset, entries["physical_offset"][is_plausible(entries)]).all():
            return False
    return True


def _log_end(log: CommitLog, own: OwnState, begin: int, data_stop: int) -> _LogEnd:
    """Follow the log to its end; as recovery would decide, except that damage is left for the scan."""
    state: LogState = examine_log(log, begin, own.sealed_from, data_stop)
    point = own.crash_point
    if point is None:
        return _LogEnd(state.last if state.beyond else state.end, not state.beyond)
    if state.end >= point.log:  # after it a crash may have left anything
        return _LogEnd(state.end, is_whole=True)
    return _LogEnd(max(state.last, point.log), is_whole=False)


def _end_below(queue: ConsumeQueue, bound: int, end: int, log: CommitLog | None) -> int:
    """One past the last entry below ``end`` that names a record before a physical offset.

    A torn entry may hold half of its zeros, and look like one of an earlier record: physical offsets have to rise. With
    ``log``, a whole record has to state the place of the entry: 5.0 to 5.1.0 wrote other entries.
    """
    if queue.key.topic.startswith(LMQ_PREFIX):  # a second queue for records of another one
        log = None
    while end > queue.first:
        start = max(queue.first, end - _LAST_ENTRIES)
        entries = queue.entries(start, end)
        physical = np.where(_names_a_record_below(entries, bound), entries["physical_offset"], -1)
        rises = physical > np.maximum.accumulate(np.concatenate([[-1], physical]))[:-1]
        for row in np.flatnonzero(rises)[::-1]:  # the last one, but for torn entries
            found = log.record_at(int(physical[row])) if log is not None else None
            place = (queue.key.queue_id, start + int(row))
            if found is None or (found.record.queue_id, found.record.queue_offset) == place:
                return place[1] + 1
        pads = np.flatnonzero(is_pad(entries))
        if pads.size:
            return start + int(pads[-1]) + 1
        end = start
    return queue.first


def _names_a_record_below(entries: Entries, bound: int) -> Mask:
    below: Mask = is_plausible(entries) & (entries["physical_offset"] + entries["size"] <= bound) & ~is_pad(entries)
    return below


def _rows(derived: DerivedQueue, rows: Mask) -> DerivedQueue:
    return DerivedQueue(*(column[rows] for column in derived))
