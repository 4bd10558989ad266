"""What a store has beside its log, made again from the log: queues, index, and the state of a store that was closed.

::

    CommitLog ──► derive (entries of each queue) ──► placement (where they go) ──► a fresh directory

Rebuilt queues are byte for byte as a broker would have dispatched them. Every message keeps its queue offset: that of a
lost one repeats the next entry.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..config import StoreConfig
from ..directory.file_sizes import check_queue_entries, stored_sizes
from ..directory.layout import refuse_dledger
from ..directory.topics import batch_topics, refuse_batch_topics
from ..dispatch.derive import all_entries_of, without_stale
from ..dispatch.entry_placement import Placed, Placement
from ..dispatch.rules import warn_unnamed
from ..errors import ConfigError, StoreInUseError
from ..files.fresh_directory import FreshDirectory
from ..files.fs import LocalFileSystem, absolute
from ..files.store_lock import held_lock
from ..files.writable_fs import LocalWritableFileSystem
from ..format import checkpoint as checkpoints
from ..format import durable_point
from ..format.checkpoint import Checkpoint
from ..format.consume_queue import ENTRY, ENTRY_BYTES, Entries, by_file, encode, pads
from ..format.durable_point import DurablePoint, FileSizes
from ..format.index_file import Geometry
from ..format.message import (
    Ints,
)
from ..format.naming import LMQ_PREFIX
from ..format.store_paths import CHECKPOINT, StorePaths
from ..index.table import index_files, read_header
from ..index.writer import IndexWriter, put_keys
from ..queues.consume_queues import ConsumeQueues
from ..read.snapshot import Snapshot
from ..types import QueueKey, QueueSource
from .log_parts import Regular, Spread, by_segment, followed, log_segment, near, one_by_one, parts_of, walk_part

_log = logging.getLogger(__name__)

_KEYED_RECORDS: Final = 1 << 18  # at a time: keys of a segment of small records have gigabytes
_ROUND_PARTS: Final = 64


@dataclass(frozen=True, slots=True)
class RebuiltQueues:
    """Result of a rebuild.

    Attributes
    ----------
    queues, entries
        Queues, and messages that their entries name.
    lost_messages
        Places of messages that are lost, which repeat the next entry.
    left_out
        Records in no queue, since another record has their queue offset, or since no queue can have their name.
    files, bytes
        Files, and their lengths together; they are sparse after the last entry.
    """

    queues: int
    entries: int
    lost_messages: int
    left_out: int
    files: int
    bytes: int


def rebuild_queues(
    store: Snapshot | str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    entries_per_segment: int | None = None,
    spread: Spread = one_by_one,
) -> RebuiltQueues:
    """Write the ConsumeQueues of a whole store into a new directory, which appears once all of it is on the device.

    Byte for byte as a broker would have dispatched them. Reads the CommitLog once, some parts at a
    time; memory goes with the largest segment and the number of queues.

    Parameters
    ----------
    store
        The store, or its path; only its CommitLog is looked at.
    directory
        A new path, or an empty directory; for a broker, the store's ``consumequeue``.
    entries_per_segment
        Entries in a file: the broker's ``mappedFileSizeConsumeQueue`` / 20. A broker refuses files of another size. By
        default the known size of the store, else RocketMQ's default.
    spread
        ``spread(work, parts)`` derives the entries of parts of the log, and can do so in other processes.

    Raises
    ------
    StoreInUseError
        If a broker has the store open.
    ConfigError
        If ``directory`` is not empty, or the known file size of the store is another one.

    Notes
    -----
    Not rebuilt: light queues (``%LMQ%…``) and the filter bits of ``consumequeue_ext``. Entries of
    the schedule topic have the times of RocketMQ's default ``messageDelayLevel``.
    """
    snapshot = _opened(store)
    fix = "Move consumequeue/ and batchconsumequeue/ away, and start its broker, which makes all queues"
    refuse_batch_topics(snapshot.location, "its queues cannot be rebuilt", fix)
    return write_queues(snapshot, directory, entries_per_segment, spread).report()


def write_queues(
    snapshot: Snapshot,
    directory: str | os.PathLike[str],
    entries_per_segment: int | None,
    spread: Spread = one_by_one,
    entered: ConsumeQueues | None = None,
) -> "Rebuild":
    """As `rebuild_queues`, of any store, but nothing is written if a topic has batch queues.

    ``entered`` are the former queues.
    """
    if entries_per_segment is not None and entries_per_segment < 1:
        raise ConfigError(f"a file of {entries_per_segment} entries cannot be", fix="Give 1 or more")
    files = LocalFileSystem()
    entries = entries_per_segment or stored_sizes(files, snapshot.path, StoreConfig()).queue_segment_entries
    with _target(snapshot, directory) as (target, own), FreshDirectory(target, like=snapshot.path) as fresh:
        if _is_inside(snapshot, target):
            check_queue_entries(files, snapshot.path, entries)
        rebuild = Rebuild(snapshot, fresh, entries, entered)
        rebuild.run(spread)
        own()
        if rebuild.is_wanted:
            fresh.publish()
    return rebuild


def rebuild_index(
    store: Snapshot | str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    geometry: Geometry | None = None,
) -> int:
    """Write the index of a whole store into a new directory, which appears once all of it is on the device.

    Parameters
    ----------
    store
        The store, or its path; only its CommitLog is looked at.
    directory
        A path that is not there, or an empty directory; for a broker, the store's ``index``.
    geometry
        How the files are divided: the broker's ``maxHashSlotNum`` and ``maxIndexNum``. By default as the store is known
        to have them, else RocketMQ's default.

    Returns
    -------
    int
        How many keys were indexed.

    Raises
    ------
    StoreInUseError
        If a broker has the store open.
    ConfigError
        If something is at ``directory``.
    """
    return write_index(_opened(store), directory, geometry)


def write_index(snapshot: Snapshot, directory: str | os.PathLike[str], geometry: Geometry | None) -> int:
    """As `rebuild_index`, of any store."""
    keys = 0
    sizes = stored_sizes(LocalFileSystem(), snapshot.path, StoreConfig())
    geometry = geometry or Geometry(sizes.index_slots, sizes.index_entries)
    with _target(snapshot, directory) as (target, own), FreshDirectory(target, like=snapshot.path) as fresh:
        made = IndexWriter(LocalWritableFileSystem(), fresh.place(""), fresh.place("making"), geometry)
        with contextlib.closing(made) as index:
            for found in without_stale(snapshot.log.walk(snapshot.log.min_offset, snapshot.log.stop)):
                places = found.segment.base + found.records.positions
                for at in range(0, places.size, _KEYED_RECORDS):
                    part = slice(at, at + _KEYED_RECORDS)
                    keys += put_keys(index, found.records.take(part), places[part])
            index.sync()
        own()
        fresh.publish()
    return keys


def _opened(store: Snapshot | str | os.PathLike[str]) -> Snapshot:
    opened = store if isinstance(store, Snapshot) else Snapshot.open(store, queue_source=QueueSource.COMMIT_LOG)
    refuse_dledger(opened.location.fs, opened.path, "its queues and index cannot be rebuilt")
    return opened


@contextlib.contextmanager
def _target(snapshot: Snapshot, directory: str | os.PathLike[str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the path to write to, and a check that a store that is written into is still locked."""
    if snapshot.is_live:
        raise StoreInUseError("another process has this store open", path=snapshot.path, fix="Stop the broker first")
    target = absolute(directory)
    inside = _is_inside(snapshot, target)
    with held_lock(StorePaths(snapshot.path).lock) if inside else contextlib.nullcontext() as lock:
        yield target, (lock.ensure_held if lock is not None else lambda: None)


def _is_inside(snapshot: Snapshot, target: str) -> bool:
    return os.path.commonpath([snapshot.path, target]) == snapshot.path


class Rebuild:
    """Queues on their way into a new directory."""

    def __init__(
        self, snapshot: Snapshot, fresh: FreshDirectory, entries_per_segment: int, entered: ConsumeQueues | None
    ) -> None:
        self._log = log = snapshot.log
        self.is_wanted = not batch_topics(snapshot.location)
        """False for a store with batch queues: its broker makes all queues, or none if it finds some of them."""
        self._fresh = fresh
        self._file_entries = entries_per_segment
        self._placement = Placement(log, log.min_offset, entered=entered)
        self._begun: set[QueueKey] = set()
        self._files = self._entries = self._lost = self._left_out = 0
        self.corrected: list[tuple[int, int]] = []
        """Physical offsets of records whose header has a damaged queue offset, and the right one."""

    def run(self, spread: Spread) -> None:
        log = self._log
        parts = parts_of(log, LocalFileSystem(), log.data_stop())
        # In rounds, since the entries of all parts would not fit into memory.
        rounds = (parts[at : at + _ROUND_PARTS] for at in range(0, len(parts), _ROUND_PARTS))
        walked = (each for some in rounds for each in near(spread, parts)(walk_part, some))
        for number, segment, found in followed(log, by_segment(parts, walked), self._placement, log.stop):
            if isinstance(found, Regular):
                for run, entries in zip(found.runs, found.entries, strict=True):
                    self._append(run.key, run.start, np.frombuffer(entries, ENTRY))
            else:
                for key, placed in self._placement.place(found, dict(all_entries_of(found, self._leave_out))):
                    if placed.entries.size:
                        self._append(key, placed.start, placed.entries, placed.repeated)
                    self._note(key, placed)
            so_far = f"{self._entries} entries of {len(self._begun)} queues so far"
            log_segment(_log, segment.base, number, len(log.segments), so_far)
        for key, physical in self._placement.left_out():
            self._note_left_out(key, physical, 1)

    def report(self) -> RebuiltQueues:
        return RebuiltQueues(
            queues=len(self._begun),
            entries=self._entries,
            lost_messages=self._lost,
            left_out=self._left_out,
            files=self._files,
            bytes=self._files * self._file_entries * ENTRY_BYTES,
        )

    def _leave_out(self, topic: str, places: Ints) -> None:
        self._left_out += places.size
        warn_unnamed(self._log.directories[0], topic, int(places[0]))

    def _note(self, key: QueueKey, placed: Placed) -> None:
        """Note records with a damaged queue offset, and records that are in no queue."""
        if placed.left_out.size:
            self._note_left_out(key, int(placed.left_out[0]), placed.left_out.size)
        if not key.topic.startswith(LMQ_PREFIX):  # a light queue is named in properties
            rows = np.flatnonzero(placed.corrected)
            places = placed.entries["physical_offset"][rows].tolist()
            self.corrected += zip(places, (placed.start + rows).tolist(), strict=True)

    def _note_left_out(self, key: QueueKey, first: int, count: int) -> None:
        self._left_out += count
        holder = self._log.find(first)
        path = holder.path if holder else self._log.directories[0]
        text = "%d records of queue %s are left out: other records have their queue offsets; the first: %s, offset %d"
        _log.warning(text, count, key, path, first)

    def _append(self, key: QueueKey, start: int, entries: Entries, repeated: int = 0) -> None:
        if not self.is_wanted:
            return
        if key not in self._begun:
            self._begun.add(key)
            missing = start % self._file_entries
            self._write(key, start - missing, pads(missing))
        self._write(key, start, entries)
        self._entries += entries.size - repeated
        self._lost += repeated

    def _write(self, key: QueueKey, start: int, entries: Entries) -> None:
        for piece in by_file(start, entries, self._file_entries):
            self._files += piece.position == 0  # no file begins in its middle
            self._fresh.write(
                os.path.join(key.topic, str(key.queue_id), piece.name),
                piece.position,
                encode(piece.entries),
                file_bytes=self._file_entries * ENTRY_BYTES,
            )


def description(root: str, end: int, newest_ms: int, sizes: FileSizes) -> dict[str, bytes]:
    """Return checkpoint and durable point by path, by which a store that was copied is one of ours that was closed."""
    checkpoint = Checkpoint(physic_timestamp=newest_ms, logics_timestamp=newest_ms)
    made = Snapshot.open(root)
    ends = sum(bounds.max_offset for topic in made.topics() for bounds in made.queues(topic))
    fs = LocalFileSystem()
    newest = max(index_files(fs, StorePaths(root).index), default=None)
    point = DurablePoint(
        log=end,
        queues=end,
        entries=ends,
        clean=True,
        index_file=int(os.path.basename(newest)) if newest else 0,
        index_count=read_header(fs, newest).count if newest else 1,
        sizes=sizes,
    )
    return {CHECKPOINT: checkpoints.encode(checkpoint), StorePaths("").durable_point: durable_point.encode(point)}
