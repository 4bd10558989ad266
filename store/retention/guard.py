"""Messages that protected consumer groups have not read: the physical offset from which on segments are kept.

::

    offsets of a group      orders/0: 120         consumequeue/orders/0   [ … │119│120│ … ]
                            orders/1: at its end                                    └─► physical offset 5,300
    ──► lowest of all protected groups and queues ──► policy.decide: a segment that ends after it is kept

A stream of the connector publishes its progress as a group's (`consumerGroup`), and is protected by that name. RocketMQ
has no such guard: it deletes by age and space only.
"""

import os
from collections.abc import Callable, Iterator, Sequence

from ..directory.group_offsets import by_queue, read_progress
from ..errors import SegmentLogError
from ..format.consume_queue import is_plausible
from ..format.message import MIN_RECORD_BYTES
from ..format.store_paths import StorePaths
from ..queues.consume_queue import ConsumeQueue
from ..types import QueueKey
from .state import Unread
from .survey import StoreFiles

_EVERYTHING = 0


class Guard:
    """Finds the first message that a protected group has not read.

    A queue without an offset counts as unread if the group reads its topic. So does the whole log if a group has no
    offsets, or if they cannot be read.
    """

    def __init__(
        self, files: StoreFiles, groups: Sequence[str], dispatched: Callable[[], int] = lambda: (1 << 63) - 1
    ) -> None:
        self._files = files
        self._groups = groups
        self._dispatched = dispatched

    def unread(self) -> Unread:
        """Return from where on the log holds messages that a protected group has not read.

        Reads the offsets of all groups, and per queue of a protected group some entries.
        """
        found = Unread(self._dispatched(), "records after it are not in their queues yet")
        try:
            progress = read_progress(self._files.fs, self._files.path).merged()
        except SegmentLogError as error:
            return Unread(_EVERYTHING, f"offsets of groups cannot be read: {error}")
        segments = self._files.segments()
        log_start = segments[0].base if segments else 0
        records_max = sum(each.size for each in segments) // MIN_RECORD_BYTES
        for group in self._groups:
            offsets = by_queue(progress, group)
            if not offsets:
                return Unread(_EVERYTHING, f"group {group} has no offsets yet")
            for key in self._queues(offsets):
                queue = ConsumeQueue(
                    self._files.fs, StorePaths(self._files.path).consume_queue(key), key, missing_max=records_max
                )
                end = queue.data_end()
                position = max(offsets.get(key, 0), queue.first)
                if position < end:
                    position = max(position, queue.first_alive(log_start, end))
                if position < end:
                    entries = queue.entries(position, position + 1)
                    physical = int(entries["physical_offset"][0]) if is_plausible(entries)[0] else _EVERYTHING
                    found = min(found, Unread(physical, f"group {group} has read {key} up to offset {position}"))
        return found

    def _queues(self, offsets: dict[QueueKey, int]) -> Iterator[QueueKey]:
        """List the queues of the topics of a group."""
        root = StorePaths(self._files.path).consume_queues
        for topic in sorted({key.topic for key in offsets}):
            for each in self._files.fs.list_dir(os.path.join(root, topic)):
                if each.is_dir and each.name.isascii() and each.name.isdecimal():
                    yield QueueKey(topic, int(each.name))
