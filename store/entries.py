"""Entries of planned ranges: from the ConsumeQueue, from the log where there is none, healed where it is damaged.

::

    ConsumeQueue   e0  e1  ##  ##  e4  e5          ## damaged, zero, or naming a record that is another
                       └───┐       ┌┘
    CommitLog      ....[e1][ walk ][e4]....        the log between the sound neighbours knows what stood there

RocketMQ has no such reading: it cuts a queue at the first entry that makes no sense.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from .commit_log import CommitLog
from .consume_queue import ConsumeQueue
from .derive import DerivedQueue, derive_queue
from .format.consume_queue import NATIVE, Entries, is_pad, is_plausible
from .format.message import Ints, Mask
from .plan import PlannedRange
from .types import QueueKey

_BLOCK_ENTRIES = 1 << 16


class StoreView(Protocol):
    """What of a store a scan reads from."""

    @property
    def log(self) -> CommitLog:
        """Its CommitLog."""

    @property
    def broker_name(self) -> str:
        """The name that its rows carry."""

    def queue(self, key: QueueKey) -> ConsumeQueue:
        """One of its ConsumeQueues, which may have no files."""


class Block(NamedTuple):
    """Consecutive messages of one queue.

    Attributes
    ----------
    queue_offset
        (n,) int64, rising.
    entries
        (n,) array of ``format.consume_queue.NATIVE``.
    """

    queue_offset: Ints
    entries: Entries


class Healed(NamedTuple):
    """What the log says of entries that were in doubt.

    Attributes
    ----------
    entries
        (n,) entries, replaced where the log knows better.
    sound
        (n,) bool: replaced, or confirmed as they were. The others stand for records that are damaged or not there.
    confirmed
        (n,) bool: the entry is right although its record states another queue offset. A broker of 5.0 to 5.1.0 burns a
        queue offset when a put fails: the record's number jumps, its place in the queue does not.
    """

    entries: Entries
    sound: Mask
    confirmed: Mask


def range_blocks(store: StoreView, planned: PlannedRange) -> Iterator[Block]:
    """All messages of a range, in order, in blocks.

    Pads are left out. Entries that make no sense are healed where the log can, else handed on as they are.
    """
    if planned.walk is not None:
        derived = derive_queue(store.log, planned.key, *planned.walk)
        inside = (derived.queue_offset >= planned.start) & (derived.queue_offset < planned.stop)
        yield Block(derived.queue_offset[inside], _as_entries(derived)[inside])
        return
    queue = store.queue(planned.key)
    for start in range(planned.start, planned.stop, _BLOCK_ENTRIES):
        stop = min(start + _BLOCK_ENTRIES, planned.stop)
        entries = queue.entries(start, stop)
        offsets = np.arange(start, stop)
        real = ~is_pad(entries)
        if not real.all():
            entries, offsets = entries[real], offsets[real]
        senseless = ~is_plausible(entries)
        if senseless.any():
            entries = heal(store, planned.key, offsets, entries, senseless).entries
        yield Block(offsets, entries)


def heal(store: StoreView, key: QueueKey, offsets: Ints, entries: Entries, doubtful: Mask) -> Healed:
    """Ask the log about entries that make no sense, or whose record is not the one they should name.

    Parameters
    ----------
    offsets, entries
        (n,) messages of one queue, queue offsets rising.
    doubtful
        (n,) bool, which of them are in doubt; the others are taken as sound.
    """
    healed = entries.copy()
    sound = ~doubtful
    confirmed = np.zeros(offsets.size, np.bool_)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], doubtful, [False]]).astype(np.int8)))
    for first, last in edges.reshape(-1, 2):
        rows = slice(int(first), int(last))
        derived = derive_queue(store.log, key, *_span(store, key, Block(offsets, entries), rows))
        wanted = offsets[rows]
        at = np.searchsorted(derived.queue_offset, wanted)
        at_clipped = np.minimum(at, max(derived.queue_offset.size - 1, 0))
        known = np.zeros(wanted.size, np.bool_)
        if derived.queue_offset.size:
            known = derived.queue_offset[at_clipped] == wanted
        if known.any():
            replaced = healed[rows]
            replaced[known] = _as_entries(derived)[at_clipped[known]]
            healed[rows] = replaced
            sound[rows] = known
        elif _in_step(store, key, wanted, derived):
            # None is where its number says, yet these are exactly the records that lie there, in order.
            sound[rows] = confirmed[rows] = True
    return Healed(healed, sound, confirmed)


def _in_step(store: StoreView, key: QueueKey, wanted: Ints, derived: DerivedQueue) -> bool:
    """Whether the queue names just the records that lie there, in their order, though none is where its number says."""
    entries = store.queue(key).entries(int(wanted[0]), int(wanted[-1]) + 1)
    named = entries["physical_offset"][~is_pad(entries)]
    return bool(np.array_equal(derived.physical_offset, named)) and _is_burnt(store, key, int(wanted[0]))


def _is_burnt(store: StoreView, key: QueueKey, slot: int) -> bool:
    """Whether entries before ``slot`` lag behind their records' numbers because some were burnt.

    An entry that is lost shifts all later ones as a burnt number does, but then the log holds a record that no entry
    names, right where the lag begins. Each change of the lag is found by bisection and looked at there.
    """
    queue, log = store.queue(key), store.log

    def lag(at: int) -> int | None:
        entry = queue.entries(at, at + 1)
        found = log.record_at(int(entry["physical_offset"][0])) if is_plausible(entry)[0] else None
        return None if found is None else int(found.records.field("queue_offset")[0]) - at

    def nothing_between(start: int, at: int) -> bool:
        return derive_queue(log, key, start, int(queue.entries(at, at + 1)["physical_offset"][0])).size.size == 0

    while slot > queue.first:
        behind = lag(slot - 1)
        if behind is None or behind <= 0:
            return behind == 0
        low, step = slot - 1, 1
        while (before := max(low - step, queue.first - 1)) >= queue.first and lag(before) == behind:
            low, step = before, 2 * step
        while low - before > 1:
            middle = (low + before) // 2
            if lag(middle) == behind:
                low = middle
            else:
                before = middle
        if low == queue.first:
            return nothing_between(log.min_offset, low)
        entry = queue.entries(low - 1, low)
        if not is_plausible(entry)[0] or not nothing_between(int(entry["physical_offset"][0] + entry["size"][0]), low):
            return False
        slot = low
    return True


def _span(store: StoreView, key: QueueKey, block: Block, rows: slice) -> tuple[int, int]:
    """Where in the log the records of some rows of a block must lie: between those of their neighbours."""
    # Rows that a predicate left out stand between those that are here.
    queue, offsets = store.queue(key), block.queue_offset
    wanted, after_wanted = int(offsets[rows.start]), int(offsets[rows.stop - 1]) + 1
    before, after = block.entries[rows.start - 1 : rows.start], block.entries[rows.stop : rows.stop + 1]
    if rows.start == 0 or int(offsets[rows.start - 1]) != wanted - 1:
        before = queue.entries(wanted - 1, wanted)
    if rows.stop == offsets.size or int(offsets[rows.stop]) != after_wanted:
        after = queue.entries(after_wanted, after_wanted + 1)
    start, stop = store.log.min_offset, store.log.stop
    if before.size and is_plausible(before)[0]:
        start = int(before["physical_offset"][0] + before["size"][0])
    if after.size and is_plausible(after)[0]:
        stop = int(after["physical_offset"][0])
    if not store.log.min_offset <= start <= stop <= store.log.stop:
        return store.log.min_offset, store.log.stop  # a neighbour is damaged as well: look everywhere
    return start, stop


def _as_entries(derived: DerivedQueue) -> Entries:
    entries = np.zeros(derived.queue_offset.size, NATIVE)
    entries["physical_offset"] = derived.physical_offset
    entries["size"] = derived.size
    entries["tags_code"] = derived.tags_code
    return entries
