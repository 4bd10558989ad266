"""Messages that a broker keeps beside its CommitLog, in compacted topics and in tiered storage, or in batches.

::

    compaction/compactionCq/TOPIC/QUEUE/N     a unit per message (format/compaction_queue.py)
    batchconsumequeue/TOPIC/QUEUE/N           a unit per record, which is a message, or a batch of them
    config/tieredStoreMetadata.json           consumeQueueFileSegmentTable
                                                BROKER/TOPIC/QUEUE → offset in bytes of 20 → size, times of its messages

    queue offsets      12 … 40 … 97  │ 98 … 240
                       kept there    │ in the queue of the CommitLog: read
                       left out      │

Compacted topics and tiered storage keep messages that retention has deleted from the CommitLog. No read has those that
a producer sent in batches. RocketMQ: ``CompactionStore``, ``DefaultMetadataStore``, ``BatchConsumeQueue``.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np

from ..directory.documents import load_document
from ..files.fs import FileSystem
from ..files.segments import list_segments
from ..format.compaction_queue import UNIT_BYTES, decode_units
from ..format.consume_queue import ENTRY_BYTES
from ..format.documents import Json
from ..format.message import SYS_INNER_BATCH
from ..format.store_paths import COMPACTION, CONFIG
from ..log.commit_log import records_at
from ..read.snapshot import Snapshot
from ..types import QueueKey

_QUEUES: Final = os.path.join(COMPACTION, "compactionCq")
_METADATA: Final = os.path.join(CONFIG, "tieredStoreMetadata.json")
_DELETED: Final = 2
"""Status of a segment that the tiered store has deleted."""


class Place(Enum):
    """Where a broker keeps messages beside its CommitLog."""

    COMPACTION = "compaction"
    TIERED = "tiered storage"
    BATCHES = "batch queues"


class Span(NamedTuple):
    """Messages, with the lowest and the highest store time; None if there are none."""

    messages: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    def __add__(self, other: object) -> "Span":
        assert isinstance(other, Span)
        times = [each for each in (*self[1:], *other[1:]) if each is not None]
        return Span(self.messages + other.messages, min(times, default=None), max(times, default=None))


@dataclass(frozen=True, slots=True)
class Beside:
    """Messages of one topic beside the CommitLog.

    Attributes
    ----------
    place
    topic
    kept
        All messages there.
    left_out
        Those that no read of the store has: they are not in the CommitLog, or in batches. Times of tiered storage are
        those of its files.
    path
        File or directory that states them.
    """

    place: Place
    topic: str
    kept: Span
    left_out: Span
    path: str

    def with_more(self, other: "Beside") -> "Beside":
        """Add messages of another queue, or file, of the topic."""
        return replace(self, kept=self.kept + other.kept, left_out=self.left_out + other.left_out)


def beside_log(snapshot: Snapshot) -> list[Beside]:
    """Return what a store keeps beside its CommitLog, by place and topic.

    `FormatError` if the metadata of tiered storage, and their backup, cannot be parsed.
    """
    fs, root = snapshot.location.fs, snapshot.path
    first = _first_offsets(snapshot)
    found: dict[tuple[Place, str], Beside] = {}
    for each in (*_compacted(fs, root, first), *_tiered(fs, root, first), *_batched(snapshot)):
        at = each.place, each.topic
        found[at] = each if at not in found else found[at].with_more(each)
    return [found[each] for each in sorted(found, key=lambda each: (each[0].value, each[1]))]


def _first_offsets(snapshot: Snapshot) -> Mapping[QueueKey, int]:
    return {each.key: each.min_offset for topic in snapshot.topics() for each in snapshot.queues(topic)}


def _compacted(fs: FileSystem, root: str, first: Mapping[QueueKey, int]) -> Iterator[Beside]:
    for key, path, units in _queues_of_units(fs, os.path.join(root, _QUEUES)):
        is_out = units["queue_offset"] < first.get(key, np.iinfo(np.int64).max)
        yield Beside(Place.COMPACTION, key.topic, _span(units), _span(units[is_out]), path)


def _batched(snapshot: Snapshot) -> Iterator[Beside]:
    log = snapshot.log
    for key, path, units in _queues_of_units(snapshot.location.fs, snapshot.location.paths.batch_queues):
        held = units[units["physical_offset"] >= log.min_offset]
        in_batch = np.zeros(held.size, np.bool_)
        for _, rows, records in records_at(log, held["physical_offset"].astype(np.int64)):
            in_batch[rows] = records.field("sys_flag") & SYS_INNER_BATCH != 0
        yield Beside(Place.BATCHES, key.topic, _span(held), _span(held[in_batch]), path)


def _queues_of_units(fs: FileSystem, folder: str) -> Iterator[tuple[QueueKey, str, Any]]:
    """Yield each queue with the directory of its topic and its units."""
    for topic in fs.list_dir(folder):
        path = os.path.join(folder, topic.name)
        for queue in fs.list_dir(path) if topic.is_dir else ():
            if not (queue.is_dir and queue.name.isascii() and queue.name.isdigit()):
                continue
            # Subdirectories have what is being compacted or copied from a master, and is here, too.
            segments = list_segments(fs, [os.path.join(path, queue.name)])
            # A file has 13 MB by default, most of them zeros; its last unit ends with some.
            files = [decode_units(fs.read(each.path, 0, fs.data_end(each.path) + UNIT_BYTES)) for each in segments]
            if files:
                yield QueueKey(topic.name, int(queue.name)), path, np.concatenate(files)


def _span(units: Any) -> Span:
    times = units["store_time"]
    return Span(int(units["messages"].sum()), int(times.min()), int(times.max())) if times.size else Span()


def _tiered(fs: FileSystem, root: str, first: Mapping[QueueKey, int]) -> Iterator[Beside]:
    path = os.path.join(root, _METADATA)
    table = load_document(fs, path, lambda found: found.document.get("consumeQueueFileSegmentTable"))
    for name, segments in _items(table):
        _, _, rest = name.partition("/")  # the broker
        topic, _, queue = rest.rpartition("/")
        if not topic or not (queue.isascii() and queue.isdigit()):
            continue
        key = QueueKey(topic, int(queue))
        for _, segment in _items(segments):
            numbers = dict(_items(segment))
            base, size, begin, end = (
                value if isinstance(value := numbers.get(each), int) else 0
                for each in ("baseOffset", "size", "beginTimestamp", "endTimestamp")
            )
            start, stop = base // ENTRY_BYTES, (base + size) // ENTRY_BYTES
            if numbers.get("status") == _DELETED or stop <= start:
                continue
            missing = max(0, min(stop, first.get(key, stop)) - start)
            left_out = Span(missing, begin, end) if missing else Span()
            yield Beside(Place.TIERED, topic, Span(stop - start, begin, end), left_out, path)


def _items(found: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(found, dict):
        yield from ((str(name), value) for name, value in found.items())
