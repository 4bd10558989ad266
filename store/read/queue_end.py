"""Bounds of a queue as a reader sees them: the one answer to where a queue begins and ends.

::

    entries   [--][e1][e2][##][e4][00]…       -- retired with its segment    ## makes no sense    00 never written
                   ▲                ▲ data_end: by the bytes
                   └ first_alive

    derived from the log          its first and last record
    undispatched tail, exact      the tail's end
    otherwise                     after the last entry that names a record; on a store that is not live the log tells
                                  what follows it. Then everything that a batch in flight hides is cut off.

An entry that makes no sense is half written, damaged, or of a record that is gone.
"""

import logging

from ..dispatch.derive import derive_queue
from ..format.consume_queue import is_plausible
from ..log.commit_log import CommitLog
from ..queues.consume_queue import ConsumeQueue
from ..types import QueueBounds
from .snapshot import StoreSnapshot

_log = logging.getLogger(__name__)


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
        _log.warning(
            "ConsumeQueue %s is damaged from entry %d on; by the CommitLog the queue ends at offset %d",
            queue.directory,
            sound,
            true_end,
        )
    return true_end
