"""ConsumeQueues that RocketMQ keeps in a RocksDB database, as of one snapshot.

::

    consumequeue/              the database, by itself or beside topic directories (rocksdbCQDoubleWriteEnable)
    consumequeue_rocksdb/      the same with useSeparateStorePathForRocksdbCQ

    entries [0, 9)   RocksPart(0, e0 e1 e2), RocksPart(5, e5 e6 e7 e8)       entries 3 and 4 are not in the database

A broker writes the database without a write-ahead log, from memory that it flushes rarely. So the snapshot ends before
the CommitLog does. Entries of later records, and entries that are missing in between, are derived from the CommitLog
(see `dispatched_up_to`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Self

from ..errors import CorruptError, CorruptQueueError, FormatError
from ..files.fs import FileSystem
from ..files.rocksdb import DEFAULT_FAMILY, RocksDatabase
from ..format.consume_queue import Entries
from ..format.naming import is_readable_topic
from ..format.rocksdb_queues import (
    CHECKPOINT,
    OFFSET_FAMILY,
    decode_values,
    entry_key,
    max_key,
    parse_bound,
    parse_entry_key,
    parse_max_key,
    queue_prefix,
)
from ..types import QueueKey

CHUNK: Final = 1 << 16
"""Entries of one part, at most."""


class RocksBounds(NamedTuple):
    """Queue offsets ``[start, stop)`` of a queue in the database, and where its last record begins."""

    start: int
    stop: int
    last_physical: int  # -1 if unknown


class RocksPart(NamedTuple):
    """Entries without a gap: ``entries[i]`` has queue offset ``start + i``."""

    start: int
    entries: Entries  # (n,) of `consume_queue.NATIVE`


class RocksQueues:
    """The queues of one database. Methods raise `CorruptQueueError` for damage. Not thread-safe."""

    def __init__(self, database: RocksDatabase) -> None:
        self._database = database
        self._bounds: dict[QueueKey, RocksBounds | None] = {}

    @classmethod
    def open(cls, fs: FileSystem, directory: str) -> Self:
        """Open the database of a directory, see `RocksDatabase.open`."""
        with _damage_reported(directory, "the database"):
            return cls(RocksDatabase.open(fs, directory))

    @property
    def directory(self) -> str:
        """Directory of the database."""
        return self._database.directory

    def is_current(self, fs: FileSystem) -> bool:
        """Return whether the broker has flushed nothing since the database was opened."""
        return self._database.is_current(fs)

    def queues(self) -> list[QueueKey]:
        """All queues that have entries, or had some; sorted. Two seeks per queue."""
        found: set[QueueKey] = set()
        with _damage_reported(self.directory, "the list of queues"):
            for bound_key, _ in self._database.items(OFFSET_FAMILY):
                queue = parse_max_key(bound_key)
                if queue is not None and queue != CHECKPOINT:
                    found.add(queue)
            key = self._database.first(DEFAULT_FAMILY, b"")
            while key is not None:
                entry = parse_entry_key(key)
                if entry is None:  # a key of another kind
                    key = self._database.first(DEFAULT_FAMILY, key + b"\0")
                else:
                    found.add(entry.queue)
                    key = self._database.first(DEFAULT_FAMILY, queue_prefix(entry.queue) + b"\xff")
        return sorted(queue for queue in found if is_readable_topic(queue.topic))

    def bounds(self, queue: QueueKey) -> RocksBounds | None:
        """Bounds of a queue by its entries; by its last offset if it has no entries; None for an unknown queue."""
        if queue not in self._bounds:
            with _damage_reported(self.directory, queue):
                self._bounds[queue] = self._find_bounds(queue)
        return self._bounds[queue]

    def _find_bounds(self, queue: QueueKey) -> RocksBounds | None:
        first_key = self._database.first(DEFAULT_FAMILY, entry_key(queue, 0))
        first = None if first_key is None else parse_entry_key(first_key)
        if first is None or first.queue != queue:
            value = self._database.get(OFFSET_FAMILY, max_key(queue))
            if value is None:
                return None
            bound = parse_bound(value)
            stop = max(bound.queue_offset + 1, 0)
            return RocksBounds(stop, stop, bound.physical_offset)
        last_key = self._database.last(DEFAULT_FAMILY, queue_prefix(queue) + b"\xff")
        last = None if last_key is None else parse_entry_key(last_key)
        if last_key is None or last is None or last.queue != queue or last.offset < first.offset:
            raise CorruptQueueError(
                f"the entries of {queue} have no last one after the first, {first.offset}", path=self.directory
            )
        value = self._database.get(DEFAULT_FAMILY, last_key)
        entries = decode_values([] if value is None else [value])
        return RocksBounds(first.offset, last.offset + 1, int(entries["physical_offset"][0]) if entries.size else -1)

    def entries(self, queue: QueueKey, start: int, stop: int, chunk: int = CHUNK) -> Iterator[RocksPart]:
        """Yield the entries of queue offsets ``[start, stop)`` in order, at most ``chunk`` at a time.

        Where entries are missing a part ends, and the next one begins later.
        """
        known = self.bounds(queue)
        if known is None:
            return
        start, stop = max(start, known.start), min(stop, known.stop)
        while start < stop:
            end = min(start + chunk, stop)
            with _damage_reported(self.directory, queue, start):
                yield from self._parts(queue, start, end)
            start = end

    def _parts(self, queue: QueueKey, start: int, stop: int) -> Iterator[RocksPart]:
        first, after = entry_key(queue, start), entry_key(queue, stop)
        # Keys are not read: as many values as offsets, and no offset has two.
        values = self._database.values(DEFAULT_FAMILY, first, after, stop - start)
        if len(values) == stop - start:
            yield RocksPart(start, decode_values(values))
            return
        held: list[bytes] = []
        at = start
        for key, value in self._database.items(DEFAULT_FAMILY, first, after):
            entry = parse_entry_key(key)
            if entry is None or entry.queue != queue:
                continue
            if held and entry.offset != at + len(held):
                yield RocksPart(at, decode_values(held))
                held = []
            if not held:
                at = entry.offset
            held.append(value)
        if held:
            yield RocksPart(at, decode_values(held))

    def dispatched_up_to(self) -> int | None:
        """Physical offset up to which the log was dispatched when the database was flushed; None if it is not stated.

        Records before it have their entries in the database, unless retention or RocketMQ itself dropped them: both
        families are flushed together (``atomic_flush``).
        """
        with _damage_reported(self.directory, "CHECKPOINT_TOPIC"):
            value = self._database.get(OFFSET_FAMILY, max_key(CHECKPOINT))
            return None if value is None else parse_bound(value).physical_offset

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _damage_reported(directory: str, what: object, queue_offset: int | None = None) -> Iterator[None]:
    """Raise damage of a database, or of a key or value in it, as `CorruptQueueError`."""
    try:
        yield
    except CorruptQueueError:
        raise
    except CorruptError as error:
        fix = "The queues can be derived from the CommitLog instead"
        raise CorruptQueueError(error.problem, path=error.path, offset=error.offset, fix=fix) from None
    except FormatError as error:
        raise CorruptQueueError(f"{what}: {error.problem}", path=directory, offset=queue_offset) from None
