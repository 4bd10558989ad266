"""Where a ConsumeQueue ends, when its last entries may be damaged, or were never messages.

::

    entries   [e0][e1][e2][##][00]…       ## makes no sense: half written, damaged, or of a record that is gone
                        ▲   ▲ end by the bytes
                        └ last sound entry; from its record on the CommitLog says what follows
"""

import logging

from ..dispatch.derive import derive_queue
from ..format.consume_queue import is_plausible
from ..log.commit_log import CommitLog
from ..queues.consume_queue import ConsumeQueue

_log = logging.getLogger(__name__)


def queue_end(log: CommitLog, queue: ConsumeQueue, end: int, *, is_live: bool) -> int:
    """One past the last message that a ConsumeQueue names.

    Parameters
    ----------
    end
        One past its last entry that is not zero, or that is to be looked at.
    is_live
        Whether somebody may be writing: an entry that makes no sense is then not there yet.
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
            "the end of ConsumeQueue %s is damaged from entry %d on; by the CommitLog the queue ends at %d",
            queue.directory,
            sound,
            true_end,
        )
    return true_end
