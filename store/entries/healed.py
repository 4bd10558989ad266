"""Healing of ConsumeQueue entries: the CommitLog between sound neighbours tells what a damaged entry named.

::

    ConsumeQueue   e0  e1  ##  ##  e4  e5          ## damaged, zero, or naming another record
                       └───┐       ┌┘
    CommitLog      ....[e1][ walk ][e4]....        as many records as entries: in their order
                                                   other numbers than entries: by the queue offsets that records state

RocketMQ has no such reading: it cuts a queue at the first entry that makes no sense.
"""

from typing import NamedTuple

import numpy as np

from ..dispatch.derive import DerivedQueue, derive_queue
from ..format.consume_queue import NATIVE, Entries, is_plausible
from ..format.message import Ints, Mask
from ..types import QueueKey
from .choose import StoreView
from .walk_cache import WalkCache

_ANCHORS_MAX = 32
_NONE = np.empty(0, np.int64)
_CHANGES_MAX = 1024  # of the lag of one queue; more are damage, not failed puts


class Block(NamedTuple):
    """Consecutive messages of one queue."""

    queue_offset: Ints  # (n,) int64, rising
    entries: Entries  # (n,) NATIVE
    lost: Ints = _NONE  # (m,) int64, rising: queue offsets between them whose messages are known to be lost


class Healed(NamedTuple):
    """Entries that were in doubt, after the log was asked."""

    entries: Entries  # (n,) NATIVE, replaced where the log knows better
    # (n,) bool: replaced, or confirmed as they were; the records of other entries are damaged or missing
    sound: Mask
    # (n,) bool: the entry is right although its record states another queue offset. A broker of 5.0 to 5.1.0
    # burns a queue offset when a put fails: the record's number jumps, its place in the queue does not.
    confirmed: Mask


def heal(store: StoreView, walks: WalkCache, key: QueueKey, block: Block, doubtful: Mask) -> Healed:
    """Ask the log about ``doubtful`` entries, (n,) bool: implausible ones, and ones whose record is another."""
    offsets, entries = block.queue_offset, block.entries
    healed = entries.copy()
    sound = ~doubtful
    confirmed = np.zeros(offsets.size, np.bool_)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], doubtful, [False]]).astype(np.int8)))
    for first, last in edges.reshape(-1, 2):
        rows = slice(int(first), int(last))
        wanted, named = offsets[rows], entries["physical_offset"][rows]
        span = span_between(store, key, block, rows, anchored=False)
        derived = walks.queue(key, *span)
        burnt = _Lag(store, key)
        if derived.size.size == wanted.size and _stand_for(store, wanted, named, derived, span, burnt):
            # As many records as entries: they match in order, whatever queue offsets the records state.
            changed = (named != derived.physical_offset) | (entries["size"][rows] != derived.size)
            healed[rows][changed] = as_entries(derived)[changed]  # the others keep their tags code
            sound[rows], confirmed[rows] = True, derived.queue_offset != wanted
            continue
        in_place = np.isin(named, derived.physical_offset)
        all_named = store.sources.queues.queue(key).entries(int(wanted[0]), int(wanted[-1]) + 1)["physical_offset"]
        if (
            2 * in_place.sum() > in_place.size
            and (np.diff(named[in_place]) > 0).all()
            and np.isin(derived.physical_offset, all_named).all()
            and burnt.explains(int(wanted[0]))
        ):
            sound[rows] = confirmed[rows] = in_place  # burnt offsets, and some records among them that are damaged
            continue
        wider = span_between(store, key, block, rows, anchored=True)
        if wider != span:
            derived = walks.queue(key, *wider)
        _, at, stated = np.intersect1d(wanted, derived.queue_offset, assume_unique=True, return_indices=True)
        healed[rows][at] = as_entries(derived)[stated]
        sound[rows][at] = True
    return Healed(healed, sound, confirmed)


class _Lag:
    """Difference between the queue offsets that records state and the places of their entries.

    A broker that burns a queue offset makes all later entries lag by one, until it starts again. So does an entry that
    was lost; but then the log holds a record that no entry names, right where the lag begins.
    """

    def __init__(self, store: StoreView, key: QueueKey) -> None:
        self._log = store.log
        self._queue = store.sources.queues.queue(key)
        self._key = key

    def explains(self, slot: int) -> bool:
        """Return whether entries from ``slot`` on may lag; each change before them is found by bisection."""
        for _ in range(_CHANGES_MAX):
            last = self._readable(slot - 1)
            if last is None:
                return True
            low, lag = last
            if lag <= 0:
                return lag == 0
            step, before = 1, low - 1
            while before >= self._queue.first and self._at(before) == lag:
                low, step = before, 2 * step
                before = max(low - step, self._queue.first - 1)
            while low - before > 1:
                middle = (low + before) // 2
                low, before = (middle, before) if self._at(middle) == lag else (low, middle)
            previous = self._readable(low - 1)
            if previous is not None and previous[1] == lag:
                slot = previous[0] + 1
                continue
            start = self._log.min_offset
            if previous is not None:
                entry = self._queue.entries(previous[0], previous[0] + 1)
                start = int(entry["physical_offset"][0] + entry["size"][0])
            stop = int(self._queue.entries(low, low + 1)["physical_offset"][0])
            if start > stop or derive_queue(self._log, self._key, start, stop).size.size:
                return False
            slot = low
        return False

    def _at(self, slot: int) -> int | None:
        entry = self._queue.entries(slot, slot + 1)
        found = self._log.record_at(int(entry["physical_offset"][0])) if is_plausible(entry)[0] else None
        return None if found is None else found.record.queue_offset - slot

    def _readable(self, slot: int) -> tuple[int, int] | None:
        """The last entry up to a slot whose record can be read, and its lag; damage in between says nothing."""
        for at in range(slot, max(self._queue.first, slot - _ANCHORS_MAX) - 1, -1):
            lag = self._at(at)
            if lag is not None:
                return at, lag
        return None


def _stand_for(  # noqa: PLR0917 - what `heal` knows of one run of entries
    store: StoreView, wanted: Ints, named: Ints, derived: DerivedQueue, span: tuple[int, int], burnt: _Lag
) -> bool:
    """Return whether records, as many as entries, are the records of these entries in order."""
    if (derived.queue_offset == wanted).all():
        return True
    # Their queue offsets differ. Counting is safe only without damage that may hide a further record.
    if (derived.queue_offset < wanted).any() or not burnt.explains(int(wanted[0])):
        return False
    return bool((named == derived.physical_offset).all()) or not store.log.damage(*span)


def span_between(store: StoreView, key: QueueKey, block: Block, rows: slice, *, anchored: bool) -> tuple[int, int]:
    """Span of the log that holds the records of some rows of a block: between those of their neighbours.

    The record of an ``anchored`` neighbour states its very queue offset. An entry next to a damaged one may be damaged
    as well, and still name a whole record.
    """
    start, stop = store.log.min_offset, store.log.stop
    before = _neighbour(store, key, block, int(block.queue_offset[rows.start]) - 1, -1, anchored=anchored)
    after = _neighbour(store, key, block, int(block.queue_offset[rows.stop - 1]) + 1, 1, anchored=anchored)
    if before is not None:
        start = int(before["physical_offset"][0] + before["size"][0])
    if after is not None:
        stop = int(after["physical_offset"][0])
    if not store.log.min_offset <= start <= stop <= store.log.stop:
        return store.log.min_offset, store.log.stop  # a neighbour is damaged as well: look everywhere
    return start, stop


def _neighbour(
    store: StoreView, key: QueueKey, block: Block, queue_offset: int, step: int, *, anchored: bool
) -> Entries | None:
    """The first entry that can be relied on from a queue offset on, or None."""
    for offset in range(queue_offset, queue_offset + step * (_ANCHORS_MAX if anchored else 1), step):
        at = int(np.searchsorted(block.queue_offset, offset))
        inside = at < block.queue_offset.size and int(block.queue_offset[at]) == offset
        entry = block.entries[at : at + 1] if inside else store.sources.queues.queue(key).entries(offset, offset + 1)
        if not entry.size or not is_plausible(entry)[0]:
            continue
        if not anchored:
            return entry
        found = store.log.record_at(int(entry["physical_offset"][0]))
        if found is not None and found.record.queue_offset == offset:
            return entry
    return None


def as_entries(derived: DerivedQueue) -> Entries:
    """Entries of derived records, as the ConsumeQueue would hold them."""
    entries = np.zeros(derived.queue_offset.size, NATIVE)
    entries["physical_offset"] = derived.physical_offset
    entries["size"] = derived.size
    entries["tags_code"] = derived.tags_code
    return entries
