"""Ends of queues after a crash: the last entry of each whose record is in the log.

::

    entries   [e0][e1][e2] … [eN][torn][00]…          records   … [r0] … [r1] … [rN]
                               ▲                                                  ▲ before the end of the log
                               └ last entry that stays: physical offsets rise up to it, its size is that of its record

    queue 0   [e0 … eN]  ┐
    queue 1   [e0 … eN]  ├─► one array ──► last entries ──► compared with the log at once
    queue 2   [e0 … eN]  ┘                └ a queue whose last entry does not stay is searched by itself

A torn entry may be half zeros, and look like an entry of another record. RocketMQ: ``ConsumeQueue.recover``,
``truncateDirtyLogicFiles``.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ..files.fs import FileSystem
from ..files.segments import SegmentFile
from ..format.consume_queue import ENTRY_BYTES, Entries, decode, is_pad, is_plausible, repeats_next
from ..format.message import Ints, Mask
from ..log.commit_log import CommitLog
from ..types import QueueKey

_TAIL_ENTRIES: Final = 4096
_TOGETHER_BYTES: Final = 4 << 20


class QueueEnds(NamedTuple):
    """Ends of queues.

    Attributes
    ----------
    ends
        Queue offset after the last entry that stays, of the queues that have one.
    last_physical
        Largest physical offset of these entries; -1 without one.
    """

    ends: dict[QueueKey, int]
    last_physical: int


class _Tail(NamedTuple):
    """Last entries of a queue's last file, and the queue offset after them."""

    key: QueueKey
    stop: int
    data: bytes


def find_ends(
    fs: FileSystem, segments: Mapping[QueueKey, Sequence[SegmentFile]], log_end: int, log: CommitLog
) -> QueueEnds:
    """Find the end of each queue: after its last entry whose record ends at or before ``log_end``.

    Physical offsets of entries have to rise, and the size of the last entry has to be that of its record. Records that
    retention deleted are not compared.

    Parameters
    ----------
    segments
        Files of each queue, by base.
    log_end, log
        Physical offset, and the log that ends there.
    """
    ends: dict[QueueKey, int] = {}
    last = -1
    tails: list[_Tail] = []
    size = 0
    for number, (key, files) in enumerate(segments.items(), 1):
        tails.append(_read_tail(fs, key, files))
        size += len(tails[-1].data)
        if size >= _TOGETHER_BYTES or number == len(segments):
            found = _ends_of(fs, segments, tails, log_end, log)
            ends |= found.ends
            last = max(last, found.last_physical)
            tails, size = [], 0
    return QueueEnds(ends, last)


def _read_tail(fs: FileSystem, key: QueueKey, files: Sequence[SegmentFile]) -> _Tail:
    """Read the last entries of a queue's last file; no bytes if it has none, or is cut inside of one."""
    if not files:
        return _Tail(key, 0, b"")
    stop = _entries_in(fs, files[-1])
    start = max(0, stop - _TAIL_ENTRIES)
    data = fs.read(files[-1].path, start * ENTRY_BYTES, (stop - start) * ENTRY_BYTES)
    return _Tail(key, files[-1].base // ENTRY_BYTES + stop, data if len(data) % ENTRY_BYTES == 0 else b"")


def _ends_of(
    fs: FileSystem,
    segments: Mapping[QueueKey, Sequence[SegmentFile]],
    tails: list[_Tail],
    log_end: int,
    log: CommitLog,
) -> QueueEnds:
    """Compare the last entries of several queues with the log; search the queues whose last entry does not stay."""
    ends: dict[QueueKey, int] = {}
    reached = -1
    filled = [tail for tail in tails if tail.data]
    if filled:
        entries = decode(b"".join(tail.data for tail in filled))
        stops = np.cumsum([len(tail.data) // ENTRY_BYTES for tail in filled])
        last = entries[stops - 1]
        stays = _ends_well(entries, stops, log_end)
        stays[stays] = _are_there(last[stays], log)
        reached = int(last["physical_offset"][stays].max(initial=-1))
        ends = {tail.key: tail.stop for tail, is_last in zip(filled, stays.tolist(), strict=True) if is_last}
    for tail in tails:
        if tail.key not in ends:
            found = _search(fs, segments[tail.key], log_end, log)
            if found is not None:
                ends[tail.key] = found[0]
                reached = max(reached, found[1])
    return QueueEnds(ends, reached)


def _search(fs: FileSystem, files: Sequence[SegmentFile], log_end: int, log: CommitLog) -> tuple[int, int] | None:
    """Return the queue offset after the last entry of one queue that stays, and its physical offset; or None."""
    for file in reversed(files):
        stop = _entries_in(fs, file)
        while stop > 0:
            start = max(0, stop - _TAIL_ENTRIES)
            data = fs.read(file.path, start * ENTRY_BYTES, (stop - start) * ENTRY_BYTES)
            entries = decode(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
            good = _may_stay(entries, log_end)
            physical = np.where(good, entries["physical_offset"], -1)
            before = np.maximum.accumulate(physical)[:-1]
            # Two equal offsets are the placeholder of a lost message, and the message after it.
            good[1:] &= (physical[1:] > before) | (repeats_next(entries) & (physical[1:] == before))
            for row in reversed(np.flatnonzero(good).tolist()):
                if _are_there(entries[row : row + 1], log)[0]:
                    return file.base // ENTRY_BYTES + start + row + 1, int(physical[row])
            stop = start
    return None


def _entries_in(fs: FileSystem, file: SegmentFile) -> int:
    """Return the number of entries up to the last byte of a file that is not zero."""
    return (fs.data_end(file.path) + ENTRY_BYTES - 1) // ENTRY_BYTES


def _may_stay(entries: Entries, log_end: int) -> Mask:
    """Entries that name a record before ``log_end``."""
    good: Mask = is_plausible(entries) & (entries["physical_offset"] + entries["size"] <= log_end)
    return good & ~is_pad(entries)


def _ends_well(entries: Entries, stops: Ints, log_end: int) -> Mask:
    """Queues whose last entry may stay, and whose last record follows those of all entries before it.

    Parameters
    ----------
    entries
        Entries of all queues, one queue after the other.
    stops
        (q,) int64, where those of each queue end; no queue is empty.
    """
    good = _may_stay(entries, log_end)
    physical = np.where(good, entries["physical_offset"], -1)
    last = physical[stops - 1]
    physical[stops - 1] = -1
    before = np.maximum.reduceat(physical, np.concatenate([[0], stops[:-1]]))
    return good[stops - 1] & (last > before)


def _are_there(entries: Entries, log: CommitLog) -> Mask:
    """Entries whose record is in the log, or was deleted from its front by retention."""
    physical = entries["physical_offset"]
    return (physical < log.min_offset) | log.sound(physical, entries["size"])
