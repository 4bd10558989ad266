"""Entries of planned ranges: from the ConsumeQueue, healed where it is damaged, or from the log where there is none.

::

    ConsumeQueue   e0  e1  ##  ##  e4  e5          ## healed, see `heal`

    ConsumeQueue   e0  e1  e3  e3  e4              an entry that repeats the next one: the place of a lost message,
                           ▲ 2: a known gap        unless the log has the message after all
"""

from collections.abc import Iterator

import numpy as np

from ..dispatch.derive import WalkCache
from ..format.consume_queue import Entries, is_plausible, repeats_next
from ..format.message import Ints
from ..types import QueueKey
from .heal import Block, StoreView, as_entries, heal, span_between
from .tasks import PlannedRange

_BLOCK_ENTRIES = 1 << 16


def range_blocks(store: StoreView, planned: PlannedRange, walks: WalkCache) -> Iterator[Block]:
    """All messages of a range, in order, in blocks.

    Pads at the front are left out. Entries that make no sense are healed where the log can, else handed on as they are.
    Those that repeat the next one are healed too; else they are left out, and the block states them as lost.

    Parameters
    ----------
    walks
        Those of all ranges of the task.
    """
    if planned.walk is not None:
        derived = walks.queue(planned.key, *planned.walk)
        inside = (derived.queue_offset >= planned.start) & (derived.queue_offset < planned.stop)
        yield Block(derived.queue_offset[inside], as_entries(derived)[inside])
        return
    queue = store.queue(planned.key)
    for start in range(planned.start, planned.stop, _BLOCK_ENTRIES):
        stop = min(start + _BLOCK_ENTRIES, planned.stop)
        ahead = queue.entries(start, stop + 1)
        entries, repeats = ahead[:-1], repeats_next(ahead)
        offsets = np.arange(start, stop)
        real = ~queue.front_pads(start, entries)
        if not real.all():
            entries, offsets = entries[real], offsets[real]
        first = queue.first if queue.segments else planned.stop
        if start < first and offsets.size:
            entries, offsets = _without_deleted(store, walks, planned.key, Block(offsets, entries), first)
        senseless = ~is_plausible(entries)
        lost = np.zeros(offsets.size, np.bool_)
        if repeats.any():
            lost = repeats[offsets - start]
            senseless |= lost
            senseless[1:] |= lost[:-1]  # of two that are equal the second may be the wrong one
        if not senseless.any():
            yield Block(offsets, entries)
            continue
        healed = heal(store, walks, planned.key, Block(offsets, entries), senseless)
        lost &= ~healed.sound
        yield Block(offsets[~lost], healed.entries[~lost], offsets[lost])


def _without_deleted(
    store: StoreView, walks: WalkCache, key: QueueKey, block: Block, first: int
) -> tuple[Entries, Ints]:
    """Leave out entries below ``first``, whose file retention deleted, unless the log still has just that message.

    They are gone, not damaged: the scan misses them, and says so. Records of other offsets never stand for them,
    however many there are.
    """
    offsets, entries = block.queue_offset, block.entries
    deleted = int(np.searchsorted(offsets, first))
    span = span_between(store, key, block, slice(0, deleted), anchored=True) if deleted else (0, 0)
    derived = walks.queue(key, *span)
    _, at, stated = np.intersect1d(offsets[:deleted], derived.queue_offset, assume_unique=True, return_indices=True)
    kept = np.concatenate([at, np.arange(deleted, offsets.size)])
    found = as_entries(derived)[stated]
    return np.concatenate([found, entries[deleted:]]), offsets[kept]
