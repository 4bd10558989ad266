"""ConsumeQueues written again from the CommitLog, byte for byte as a broker would have dispatched them.

::

    CommitLog  ──► derive (entries of each queue) ──► placement (where they go) ──► a fresh directory, published whole
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
from ..dispatch.derive import all_entries_of, records_of, without_stale
from ..dispatch.entry_placement import Placement
from ..errors import ConfigError, StoreInUseError
from ..files.fresh_directory import FreshDirectory
from ..files.fs import LocalFileSystem
from ..files.store_lock import held_lock
from ..files.writable_fs import LocalWritableFileSystem
from ..format.consume_queue import ENTRY, ENTRY_BYTES, Entries, by_file, encode, pads
from ..format.index_file import Geometry
from ..format.naming import segment_name
from ..format.store_paths import StorePaths
from ..index.writer import IndexWriter, put_keys
from ..log.commit_log import CommitLog
from ..read.spec import QueueSource
from ..read.store_reader import StoreReader
from ..types import QueueKey
from .log_parts import Spread, by_segment, near, one_by_one, parts_of, walk_part

_log = logging.getLogger(__name__)

_KEYED_RECORDS: Final = 1 << 18  # at a time: keys of a segment of small records have gigabytes
_ROUND_PARTS: Final = 64


def log_segment(log: logging.Logger, base: int, number: int, count: int, text: str) -> None:
    log.info(
        "CommitLog segment %s (%d of %d): %s",
        segment_name(base),
        number,
        count,
        text,
        extra={"done": number, "of": count},
    )


@dataclass(frozen=True, slots=True)
class RebuiltQueues:
    """Result of a rebuild.

    Attributes
    ----------
    queues, entries
        Queues, and messages that their entries name.
    lost_messages
        Places of messages that are lost, which repeat the next entry.
    files, bytes
        Files, and their lengths together; they are sparse after the last entry.
    """

    queues: int
    entries: int
    lost_messages: int
    files: int
    bytes: int


def rebuild_queues(
    store: StoreReader | str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    entries_per_segment: int | None = None,
    spread: Spread = one_by_one,
) -> RebuiltQueues:
    """Write the ConsumeQueues of a whole store into a new directory, which appears once all of it is on the device.

    Reads the CommitLog once, some parts at a time; memory goes with the largest segment and the number of queues.

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
    Not rebuilt: light queues (``%LMQ%…``) and batch queues, and the filter bits of ``consumequeue_ext``. Entries of
    the schedule topic have the times of RocketMQ's default ``messageDelayLevel``.
    """
    if entries_per_segment is not None and entries_per_segment < 1:
        raise ConfigError(f"a file of {entries_per_segment} entries cannot be", fix="Give 1 or more")
    reader, files = _opened(store), LocalFileSystem()
    entries = entries_per_segment or stored_sizes(files, reader.path, StoreConfig()).queue_segment_entries
    with _target(reader, directory) as (target, own), FreshDirectory(target) as fresh:
        if _is_inside(reader, target):
            check_queue_entries(files, reader.path, entries)
        report = _Rebuild(reader.log, fresh, entries).run(spread)
        own()
        fresh.publish()
    return report


def rebuild_index(
    store: StoreReader | str | os.PathLike[str],
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
    reader, keys = _opened(store), 0
    sizes = stored_sizes(LocalFileSystem(), reader.path, StoreConfig())
    geometry = geometry or Geometry(sizes.index_slots, sizes.index_entries)
    with _target(reader, directory) as (target, own), FreshDirectory(target) as fresh:
        made = IndexWriter(LocalWritableFileSystem(), fresh.place(""), fresh.place("making"), geometry)
        with contextlib.closing(made) as index:
            for found in without_stale(reader.log.walk(reader.log.min_offset, reader.log.stop)):
                places = found.segment.base + found.records.positions
                for at in range(0, places.size, _KEYED_RECORDS):
                    part = slice(at, at + _KEYED_RECORDS)
                    keys += put_keys(index, found.records.take(part), places[part])
            index.sync()
        own()
        fresh.publish()
    return keys


def _opened(store: StoreReader | str | os.PathLike[str]) -> StoreReader:
    return store if isinstance(store, StoreReader) else StoreReader.open(store, queue_source=QueueSource.COMMIT_LOG)


@contextlib.contextmanager
def _target(reader: StoreReader, directory: str | os.PathLike[str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the path to write to, and a check that a store that is written into is still locked."""
    if reader.is_live:
        raise StoreInUseError("another process has this store open", path=reader.path, fix="Stop the broker first")
    target = os.path.abspath(directory)
    inside = _is_inside(reader, target)
    with held_lock(StorePaths(reader.path).lock) if inside else contextlib.nullcontext() as lock:
        yield target, (lock.ensure_held if lock is not None else lambda: None)


def _is_inside(reader: StoreReader, target: str) -> bool:
    return os.path.commonpath([reader.path, target]) == reader.path


class _Rebuild:
    def __init__(self, log: CommitLog, fresh: FreshDirectory, entries_per_segment: int) -> None:
        self._log = log
        self._fresh = fresh
        self._file_entries = entries_per_segment
        self._placement = Placement(log, log.min_offset)
        self._begun: set[QueueKey] = set()
        self._files = self._entries = self._lost = 0

    def run(self, spread: Spread) -> RebuiltQueues:
        log, newest, is_stale = self._log, 0, False
        parts = parts_of(log, LocalFileSystem(), log.data_stop())
        # In rounds, since the entries of all parts would not fit into memory.
        rounds = (parts[at : at + _ROUND_PARTS] for at in range(0, len(parts), _ROUND_PARTS))
        walked = (each for some in rounds for each in near(spread, parts)(walk_part, some))
        for number, (segment, regular) in enumerate(by_segment(parts, walked), 1):
            if regular is not None and regular.is_held and self._placement.extend(regular):
                newest = max(newest, regular.newest)
                for run, entries in zip(regular.runs, regular.entries, strict=True):
                    self._append(run.key, run.start, np.frombuffer(b"".join(entries), ENTRY))
            else:
                found, newest, is_stale = records_of(log, segment, log.stop, newest)
                if found is None:
                    continue
                for key, placed in self._placement.place(found, dict(all_entries_of(found))):
                    self._append(key, placed.start, placed.entries, placed.repeated)
            so_far = f"{self._entries} entries of {len(self._begun)} queues so far"
            log_segment(_log, segment.base, number, len(log.segments), so_far)
            if is_stale:
                break
        return RebuiltQueues(
            queues=len(self._begun),
            entries=self._entries,
            lost_messages=self._lost,
            files=self._files,
            bytes=self._files * self._file_entries * ENTRY_BYTES,
        )

    def _append(self, key: QueueKey, start: int, entries: Entries, repeated: int = 0) -> None:
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
