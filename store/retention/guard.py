"""Messages for which due segments are kept: unread by protected consumer groups, or of topics with a minimum age.

::

    Guard       offsets of a group      orders/0: 120         consumequeue/orders/0  [ … │119│120│ … ]
                                        orders/1: at its end                                   └─► physical offset 5,300
                ──► lowest of all protected groups and queues ──► policy.decide: a segment that ends after it is kept

    TopicAges   consumequeue/orders/0   [ … 4,900 │ 5,300 … ]       a segment ends at 5,000
                consumequeue/orders/1   [ … 4,100 │ 7,700 … ]       └ last entry before it, by binary search
                                              └──► store times of these two records ──► the later one

A stream of the connector publishes its progress as a group's (`consumerGroup`), and is protected by that name. RocketMQ
has neither rule: it deletes by age and space only.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..directory.group_offsets import by_queue, read_progress
from ..errors import SegmentLogError
from ..format.consume_queue import is_pad, is_plausible
from ..format.message import MIN_RECORD_BYTES
from ..format.naming import parse_queue_id
from ..format.store_paths import StorePaths
from ..log.commit_log import CommitLog
from ..queues.consume_queue import ConsumeQueue
from ..types import QueueKey
from .state import UNKNOWN_MS, Unread
from .survey import StoreFiles

_EVERYTHING = 0
_KNOWN_MAX: Final = 4096  # answers that are remembered; far more than segments and topics of one run


class Guard:
    """Finds the first message that a protected group has not read."""

    # A queue without an offset counts as unread if the group reads its topic. So does the whole log if a group has no
    # offsets, or if they cannot be read.

    def __init__(
        self, files: StoreFiles, groups: Sequence[str], dispatched: Callable[[], int] = lambda: (1 << 63) - 1
    ) -> None:
        self._files = files
        self._groups = groups
        self._dispatched = dispatched

    def unread(self) -> Unread:
        """Return from where on the log holds messages that a protected group has not read."""
        # Reads the offsets of all groups, and per queue of a protected group some entries.
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
            topics = sorted({key.topic for key in offsets})
            for key in (key for topic in topics for key in _queues_of(self._files, topic)):
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


class TopicAges:
    """Store times of the newest messages of topics below ends of segments. Not thread-safe."""

    def __init__(self, files: StoreFiles, dispatched: Callable[[], int] = lambda: (1 << 63) - 1) -> None:
        self._files = files
        self._dispatched = dispatched
        self._known: dict[tuple[str, int], int | None] = {}

    def newest(self, topic: str, stop: int) -> int | None:
        """Return the store time of the newest message of a topic below a physical offset; see `State.newest`."""
        # It is unknown if records below the offset are not in their queues, if the store has no queues, or if an entry
        # or record at that place is damaged.
        if (topic, stop) in self._known:
            return self._known[topic, stop]
        found = self._find_newest(topic, stop)
        if found != UNKNOWN_MS:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[topic, stop] = found
        return found

    def _find_newest(self, topic: str, stop: int) -> int | None:
        fs, paths = self._files.fs, StorePaths(self._files.path)
        if self._dispatched() < stop or not any(each.is_dir for each in fs.list_dir(paths.consume_queues)):
            return UNKNOWN_MS
        log = CommitLog(fs, self._files.log_directories)
        newest: int | None = None
        for key in _queues_of(self._files, topic):
            found = self._newest_of(key, stop, log)
            if found is not None:
                newest = found if newest is None else max(newest, found)
        return newest

    def _newest_of(self, key: QueueKey, stop: int, log: CommitLog) -> int | None:
        fs, paths = self._files.fs, StorePaths(self._files.path)
        queue = ConsumeQueue(fs, paths.consume_queue(key), key, missing_max=log.stop // MIN_RECORD_BYTES)
        end = queue.data_end()
        at = queue.end_before(stop, end)
        # A damaged entry can lead the search astray. So the entries on both sides of the place have to agree with it.
        if at < end:
            after = queue.entries(at, at + 1)
            if not is_plausible(after)[0] or int(after["physical_offset"][0]) < stop:
                return UNKNOWN_MS
        if at <= queue.first:
            return None
        before = queue.entries(at - 1, at)
        if is_pad(before)[0]:
            return None
        physical = int(before["physical_offset"][0])
        if not is_plausible(before)[0] or physical >= stop:
            return UNKNOWN_MS
        if physical < log.min_offset:
            return None  # deleted before
        store_ms = log.store_time_at(physical)
        return UNKNOWN_MS if store_ms is None else store_ms


def _queues_of(files: StoreFiles, topic: str) -> Iterator[QueueKey]:
    for each in files.fs.list_dir(os.path.join(StorePaths(files.path).consume_queues, topic)):
        queue_id = parse_queue_id(each.name)
        if each.is_dir and queue_id is not None:
            yield QueueKey(topic, queue_id)
