"""ConsumeQueues of one store: opened one by one, or read many at once.

::

    fronts    consumequeue/T/0/000…  [e0 e1 e2 00 …]     a listing and one read per queue: e0 e1 e2
              consumequeue/T/1/000…  [e0 00 …      ]                                       e0
              consumequeue/T/2/      two files, or long  None: its `ConsumeQueue` reads single entries

    read      Span(T/0, 1, 3, 000…)  Span(T/1, 0, 1, 000…)  ──►  e1 e2, e0     one read per span, nothing is listed

The data of ten thousand short queues are decoded and checked as one array, by their readers. A queue that is long, or
of which anything is unusual, is read by itself.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from ..errors import UnknownQueueError
from ..files.fs import FileSystem, Listed
from ..files.plain_reads import Front
from ..files.segments import SegmentFile, find, segments_of
from ..format.consume_queue import ENTRY_BYTES
from ..format.naming import is_readable_topic, segment_name
from ..format.store_paths import StorePaths
from ..log.commit_log import CommitLog
from ..types import QueueKey
from .consume_queue import ConsumeQueue

FRONT_BYTES: Final = 1 << 16
"""Data of a queue that is read at once: 3,276 entries. The cost of a longer one is that of its entries."""
_KEPT_BYTES_MAX: Final = 64 << 20
_FIRST_FILE: Final = segment_name(0)
_AT_ONCE: Final = 256  # files, each with a page or more in memory until its entries are cut out


class EntrySpan(NamedTuple):
    """Entries ``[start, stop)`` of a queue, in the file whose first byte is ``base`` in the queue."""

    key: QueueKey
    start: int
    stop: int
    base: int


class QueueFront(NamedTuple):
    """The only file of a short queue."""

    base: int  # bytes of the queue before the file
    size: int  # bytes of the file
    path: str
    entries: bytes  # up to the last that is not all zero, at least one; 20 bytes each

    @property
    def file(self) -> SegmentFile:
        """The file among those of its queue."""
        return SegmentFile(self.base, self.size, self.path)


class ConsumeQueues:
    """The ConsumeQueues of a store, each opened when it is first asked for. Not thread-safe."""

    def __init__(
        self, fs: FileSystem, root: str, log: CommitLog, opened: Mapping[QueueKey, ConsumeQueue] = MappingProxyType({})
    ) -> None:
        self._fs = fs
        self._root = root
        self._paths = StorePaths(root)
        self._log = log
        self._opened = dict(opened)
        self._fronts: dict[QueueKey, QueueFront] = {}
        self._kept_bytes = 0
        self._topics: dict[str, str] = {}

    def queue(self, key: QueueKey) -> ConsumeQueue:
        """The ConsumeQueue of a queue, with or without files; `UnknownQueueError` if no topic can have this name."""
        found = self._opened.get(key)
        if found is None:
            directory = f"{self._topic_directory(key.topic)}{key.queue_id}"
            front = self._fronts.get(key)
            listed = None if front is None else [front.file]
            found = ConsumeQueue(self._fs, directory, key, missing_max=self._log.records_max, listed=listed)
            self._opened[key] = found
        return found

    def file_sizes(self, key: QueueKey) -> list[int]:
        """Bytes of each file of a queue."""
        front = self._fronts.get(key)
        return [front.size] if front is not None else [each.size for each in self.queue(key).segments]

    def base_of(self, key: QueueKey, start: int, stop: int) -> int | None:
        """Bytes of a queue before the file that has entries ``[start, stop)``; None where no file has all of them."""
        front = self._fronts.get(key)
        if front is not None:
            base, size = front.base, front.size
        else:
            file = find(self.queue(key).segments, start * ENTRY_BYTES)
            if file is None:
                return None
            base, size = file.base, file.size
        return base if base <= start * ENTRY_BYTES and stop * ENTRY_BYTES <= base + size else None

    def newer(self, log: CommitLog, moved: Collection[QueueKey]) -> "ConsumeQueues":
        """The queues of the same store, whose log is ``log`` now, if only the ``moved`` ones changed since."""
        same = log.min_offset == self._log.min_offset  # or else retention deleted files of queues
        kept = {key: queue for key, queue in self._opened.items() if key not in moved} if same else {}
        return ConsumeQueues(self._fs, self._root, log, kept)

    def fronts(self, keys: Iterable[QueueKey]) -> list[QueueFront | None]:
        """Fronts of many queues, each for one listing and one read.

        None for a queue that has no entries, several files, or more than `FRONT_BYTES` of entries. The others are kept
        for `front` until `drop_fronts`, up to 64 MiB of entries.
        """
        asked = list(keys)
        found: list[QueueFront | None] = []
        for at in range(0, len(asked), _AT_ONCE):
            some = asked[at : at + _AT_ONCE]
            directories = [f"{self._topic_directory(topic)}{queue_id}" for topic, queue_id in some]
            read = self._fs.fronts(directories, FRONT_BYTES)
            for key, directory, front in zip(some, directories, read, strict=True):
                queue = None if front is None else _queue_front(directory, front)
                found.append(queue)
                if queue is not None and self._kept_bytes + len(queue.entries) <= _KEPT_BYTES_MAX:
                    self._fronts[key] = queue
                    self._kept_bytes += len(queue.entries)
        return found

    def front(self, key: QueueKey) -> QueueFront | None:
        """The front that `fronts` has found of a queue, if it was kept."""
        return self._fronts.get(key)

    def drop_fronts(self) -> None:
        """Free the entries that `fronts` has kept."""
        self._fronts.clear()
        self._kept_bytes = 0

    def read(self, spans: Sequence[EntrySpan]) -> list[bytes | None]:
        """Bytes of each span as the file has them now; None where the file does not have all of them.

        No directory is listed: a plan says in which file the entries are.
        """
        asked = []
        for (topic, queue_id), start, stop, base in spans:
            name = segment_name(base) if base else _FIRST_FILE
            path = f"{self._topic_directory(topic)}{queue_id}/{name}"
            asked.append((path, start * ENTRY_BYTES - base, (stop - start) * ENTRY_BYTES))
        return [
            data if data is not None and len(data) == count else None
            for data, (_, _, count) in zip(self._fs.read_each(asked), asked, strict=True)
        ]

    def _topic_directory(self, topic: str) -> str:
        """Return the path of a topic's queues, with a slash at its end."""
        found = self._topics.get(topic)
        if found is None:
            if not is_readable_topic(topic):  # it is about to become part of a path
                raise UnknownQueueError(
                    f"no topic can be named {topic[:80]!r}", path=self._root, fix="topics() lists the topics"
                )
            found = self._topics[topic] = os.path.join(self._paths.consume_queues, topic, "")
        return found


def _queue_front(directory: str, front: Front) -> QueueFront | None:
    """Return the front of a queue; None where its file has no entries or needs a closer look."""
    name, size, end, data = front
    held = -(-end // ENTRY_BYTES) * ENTRY_BYTES
    if not 0 < held <= min(len(data), size):
        return None
    base = 0
    if name != _FIRST_FILE:
        segments = segments_of({directory: [Listed(name, False, False, True, size)]})  # noqa: FBT003
        if len(segments) != 1 or segments[0].base % ENTRY_BYTES:
            return None
        base = segments[0].base
    return QueueFront(base, size, f"{directory}/{name}", data[:held])
