"""Bounds of queues as a reader sees them: the one answer to where a queue begins and ends.

::

    entries   [--][e1][e2][##][e4][00]…       -- retired with its segment    ## makes no sense    00 never written
                   ▲                ▲ data_end: by the bytes
                   └ first_alive

    derived from the log          its first and last record
    undispatched tail, exact      the tail's end
    otherwise                     after the last entry that names a record; on a store that is not live the log tells
                                  what follows it. Then everything that a batch in flight hides is cut off.

An entry that makes no sense is half written, damaged, or of a record that is gone.

Most queues of a store with thousands of them are short and sound. `all_bounds` reads such queues whole, decodes them
into one array and decides with a few calls of numpy. Every other queue is looked at by itself.
"""

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from ..dispatch.derive import derive_queue
from ..files.notices import warn_once
from ..format.consume_queue import ENTRY_BYTES, decode, is_pad, is_plausible
from ..format.message import Ints, Mask
from ..log.commit_log import CommitLog
from ..queues.consume_queue import PROBE_ENTRIES, ConsumeQueue
from ..queues.consume_queues import ConsumeQueues
from ..types import QueueBounds, QueueKey
from .snapshot import StoreSnapshot

_log = logging.getLogger(__name__)


def all_bounds(
    snapshot: StoreSnapshot, log: CommitLog, queues: ConsumeQueues, keys: Sequence[QueueKey]
) -> list[QueueBounds]:
    """Find the offsets that each of many queues holds; the result of `queue_bounds` for each.

    Parameters
    ----------
    snapshot, log
        The store.
    queues
        Its ConsumeQueues; what is read of them is kept for a plan, see `ConsumeQueues.front`.
    keys
        Which queues.
    """
    fronts = queues.fronts(keys) if snapshot.goes_by_queues else [None for _ in keys]
    hidden_from = snapshot.visibility.hidden_from()  # after the entries that it applies to
    data = [front.entries for front in fronts if front is not None]
    held: Iterator[tuple[int, int, bool]] = iter(())
    if data:
        lengths = np.array([len(entries) for entries in data]) // ENTRY_BYTES
        alive, is_certain = _front_bounds(log, b"".join(data), lengths, hidden_from)
        held = zip(alive.tolist(), lengths.tolist(), is_certain.tolist(), strict=True)
    found = []
    for key, front in zip(keys, fronts, strict=True):
        if front is not None:
            alive_at, length, certain = next(held)
            if certain:
                first = front.base // ENTRY_BYTES
                found.append(QueueBounds(key, first + alive_at, first + length))
                continue
        found.append(queue_bounds(snapshot, log, queues.queue(key)))
    return found


def _front_bounds(log: CommitLog, data: bytes, lengths: Ints, hidden_from: int | None) -> tuple[Ints, Mask]:
    """Find the first entry that is alive of each of k queues, and whether that and the end are certain.

    Parameters
    ----------
    data
        All entries of all queues, up to the last that is not zero.
    lengths
        (k,) entries of each, at least one.
    hidden_from
        Physical offset from which on records are hidden; None for none.

    Returns
    -------
    (k,) int64, (k,) bool
        Entries before the first that is alive. False where `queue_bounds` has to decide: where the last entry names
        nothing, a pad follows a message, or entries are hidden. So it does where retention took the front of a queue
        longer than one probe.
    """
    entries = decode(data)
    physical = entries["physical_offset"]
    stops = np.cumsum(lengths)
    starts = stops - lengths
    plausible, pad = is_plausible(entries), is_pad(entries)
    ends = physical[stops - 1]
    certain: Mask = plausible[stops - 1] & ((ends < log.min_offset) | (log.locate(ends) >= 0))
    if hidden_from is not None:
        certain &= np.logical_and.reduceat(pad | (plausible & (physical < hidden_from)), starts)
    if pad.any():
        rows = np.arange(pad.size)
        last_pad = np.maximum.reduceat(np.where(pad, rows, -1), starts)
        certain &= last_pad < np.minimum.reduceat(np.where(plausible, rows, pad.size), starts)
    deleted = pad | (plausible & (physical < log.min_offset))
    if not deleted.any():
        return np.zeros(lengths.size, np.int64), certain
    after_deleted = np.maximum.reduceat(np.where(deleted, np.arange(1, deleted.size + 1), 0), starts)
    alive = np.maximum(after_deleted - starts, 0)
    return alive, certain & ((alive == 0) | (lengths <= PROBE_ENTRIES))


def queue_bounds(snapshot: StoreSnapshot, log: CommitLog, queue: ConsumeQueue) -> QueueBounds:
    """Find the offsets that one queue holds; both 0 for a queue that does not exist.

    Parameters
    ----------
    snapshot, log
        The store.
    queue
        The ConsumeQueue, which may have no files. Its files were listed after the snapshot's first look at the
        in-flight marker.

    Notes
    -----
    The first offset is that of the first message whose segment still exists. 4.x may report 0 where retention or pads
    took the front.
    """
    extra = snapshot.from_log(queue.key)
    if snapshot.derived is not None:
        if extra is None:
            return QueueBounds(queue.key, 0, 0)
        return QueueBounds(queue.key, int(extra.queue_offset[0]), int(extra.queue_offset[-1]) + 1)
    end = _visible_end(snapshot, log, queue)
    start = queue.first_alive(log.min_offset, end)
    if extra is not None:
        first = int(extra.queue_offset[0])
        # If the first file of a queue never reached the device, its entries begin too late. Without any entry only
        # the log tells where the queue begins.
        start = min(start, first) if queue.data_end() > queue.first else first
        end = int(extra.queue_offset[-1]) + 1
    return QueueBounds(queue.key, start, end)


def _visible_end(snapshot: StoreSnapshot, log: CommitLog, queue: ConsumeQueue) -> int:
    """One past the last message that the ConsumeQueue names and that may be seen."""
    end = queue.data_end()
    hidden_from = snapshot.visibility.hidden_from()  # after the entries that it applies to
    tail = snapshot.tail
    if tail is not None and queue.key in tail.ends:
        end = tail.ends[queue.key]
        if tail.is_exact:
            return end  # holes may follow, and entries of an unfinished batch
    end = _sound_end(log, queue, end, is_live=snapshot.is_live)
    return end if hidden_from is None else queue.end_before(hidden_from, end)


def _sound_end(log: CommitLog, queue: ConsumeQueue, end: int, *, is_live: bool) -> int:
    """One past the last message that a ConsumeQueue names.

    Parameters
    ----------
    end
        One past its last entry that is not zero, or that is to be looked at.
    is_live
        Whether a writer may be at work: an entry that makes no sense is then not finished yet.
    """
    if end <= queue.first:
        return queue.first
    last = queue.entries(end - 1, end)
    if is_plausible(last)[0]:
        offset = int(last["physical_offset"][0])
        if offset < log.min_offset or log.find(offset) is not None:
            return end
    sound = queue.last_sound(log, end)
    if is_live:
        return sound
    entry = queue.entries(sound - 1, sound)
    begin = log.min_offset
    if sound > queue.first:
        begin = int(entry["physical_offset"][0] + entry["size"][0])
    found = derive_queue(log, queue.key, begin, log.stop).queue_offset
    true_end = max(sound, int(found[-1]) + 1 if found.size else sound)
    if true_end != end or found.size:
        warn_once(
            _log,
            queue.directory,
            "ConsumeQueue %s is damaged from entry %d on; by the CommitLog the queue ends at offset %d",
            queue.directory,
            sound,
            true_end,
        )
    return true_end
