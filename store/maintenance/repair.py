"""Repair: ConsumeQueues and index written again from the log; whole records of a damaged store copied into a new store.

::

    rebuild   CommitLog ──► derive (entries of each queue) ──► placement ──► a fresh directory, published as a whole
    salvage   CommitLog ──► whole records, at their places ──► a store that a broker can continue

    damaged   [rec][rec]########[rec][rec]#####      [rec]
    copy      [rec][rec][filler][rec][rec][B…]       [rec]         B blank: the segment ends here
                         ▲ one record over the damaged bytes, of a transaction that was rolled back: in no queue

Every whole record keeps its physical offset, and every message its queue offset: that of a lost one repeats the next
entry. Rebuilt queues are byte for byte as a broker would have dispatched them.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from ..config import StoreConfig
from ..directory.archive import check_beside
from ..directory.file_sizes import check_queue_entries, check_segment_bytes, stored_sizes
from ..directory.layout import refuse_dledger
from ..directory.own_state import early_end, flushed_ms
from ..directory.topics import batch_topics, refuse_batch_topics
from ..dispatch.derive import all_entries_of, stale_rows, without_stale
from ..dispatch.entry_placement import Placed, Placement
from ..dispatch.rules import warn_unnamed
from ..errors import ConfigError, StoreInUseError
from ..files.fresh_directory import FreshDirectory
from ..files.fs import FileSystem, LocalFileSystem, absolute
from ..files.segments import SegmentFile
from ..files.small_file import DOCUMENT_BYTES_MAX, read_whole
from ..files.store_lock import held_lock, is_signed
from ..files.writable_fs import LocalWritableFileSystem
from ..format import checkpoint as checkpoints
from ..format import durable_point
from ..format.checkpoint import Checkpoint
from ..format.checksums import RecordCrc, ends_in_crc
from ..format.consume_queue import ENTRY, ENTRY_BYTES, Entries, by_file, encode, pads
from ..format.durable_point import DurablePoint, FileSizes
from ..format.index_file import Geometry
from ..format.message import (
    BLANK_BYTES,
    FILLER_TOPIC,
    MIN_RECORD_BYTES,
    RECORD_CRC_BYTES,
    SYS_ROLLBACK,
    Bytes,
    Ints,
    Problem,
    Records,
    blank_record,
    is_filler,
)
from ..format.message_encode import encode_record, pack_host, patch_record
from ..format.naming import LMQ_PREFIX, segment_name
from ..format.store_paths import CHECKPOINT, COMMIT_LOG, COMPACTION, CONFIG, CONSUME_QUEUE, INDEX, StorePaths
from ..format.walk import walk
from ..index.table import index_files, read_header
from ..index.writer import IndexWriter, put_keys
from ..log.batch_state import BatchRecords
from ..log.commit_log import CommitLog, FoundRecords
from ..queues.consume_queues import ConsumeQueues
from ..read.snapshot import Snapshot
from ..types import QueueKey, QueueSource
from .copied_timers import timer_check_of
from .index_check import keeps_index
from .log_parts import Regular, Spread, by_segment, followed, near, one_by_one, parts_of, walk_part

# Queues and index, written again

_log = logging.getLogger(__name__)

_KEYED_RECORDS: Final = 1 << 18  # at a time: keys of a segment of small records have gigabytes
_ROUND_PARTS: Final = 64
_FILLER_BYTES: Final = MIN_RECORD_BYTES + len(FILLER_TOPIC)
_COPY_BYTES: Final = 8 << 20
_QUEUE_OFFSET_AT: Final = 20  # in a record


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

    Byte for byte as a broker would have dispatched them::

        CommitLog ──► derive (entries of each queue) ──► placement (where they go) ──► a fresh directory

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


# Records of a damaged store


@dataclass(frozen=True, kw_only=True, slots=True)
class SalvageReport:
    """Result of a salvage.

    Attributes
    ----------
    records
        Whole records, without those that an earlier ``salvage`` wrote over damage.
    lost_spans, lost_bytes
        Places of the log without a whole record, and their bytes.
    dropped
        Whole records that were not copied: leftovers of a truncation, after the end of the log. Also records after
        damage that is shorter than any record.
    corrected
        Records whose header had a damaged queue offset, and has the right one in the copy.
    left_out
        Records in no queue, since another record has their queue offset, or since no queue can have their name.
    queues, entries, lost_messages
        Queues, their entries of records, and entries of lost messages, which repeat the next entry.
    keys
        Entries of the index.
    """

    records: int
    lost_spans: int
    lost_bytes: int
    dropped: int
    corrected: int
    left_out: int
    queues: int
    entries: int
    lost_messages: int
    keys: int


def salvage(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    segment_bytes: int | None = None,
    queue_segment_entries: int | None = None,
    commit_log_paths: Sequence[str | os.PathLike[str]] = (),
) -> SalvageReport:
    """Copy the whole records of a store into a new directory, which appears once the copy is on the device.

    Parameters
    ----------
    source
        The damaged store; no process should be writing it.
    target
        A new path, or an empty directory.
    segment_bytes
        Size of the segments, where the store does not state it and all of its segments were cut short. By default the
        size that the store states, else that of the longest segment.
    queue_segment_entries
        Entries in a file of a queue: the broker's ``mappedFileSizeConsumeQueue`` / 20. By default the known
        size of the store, else RocketMQ's default.
    commit_log_paths
        Directories of the segments, if they are not in ``source/commitlog`` alone.

    Raises
    ------
    ConfigError
        If ``target`` is not empty, or the source has no segment, or its segments cannot have ``segment_bytes``.

    Notes
    -----
    The copy has an index, unless the source states that it keeps none, and states its file sizes.
    """
    files, snapshot = LocalFileSystem(), Snapshot.open(source, commit_log_paths=commit_log_paths)
    refuse_dledger(files, snapshot.path, "its records cannot be copied to another store")
    check_beside(absolute(target), snapshot.path, "target")
    if not snapshot.log.segments:
        raise ConfigError("this store has no CommitLog segment", path=snapshot.path, fix="There is nothing to copy")
    if segment_bytes is not None:
        check_segment_bytes(files, snapshot.path, segment_bytes)
    sizes = stored_sizes(files, snapshot.path, StoreConfig())
    sizes = sizes._replace(
        segment_bytes=segment_bytes or sizes.segment_bytes,
        queue_segment_entries=queue_segment_entries or sizes.queue_segment_entries,
    )
    with FreshDirectory(os.fspath(target), like=snapshot.path) as fresh:
        report = _salvage_into(fresh, files, snapshot, sizes)
        fresh.publish()
    return report


def _salvage_into(fresh: FreshDirectory, files: LocalFileSystem, snapshot: Snapshot, sizes: FileSizes) -> SalvageReport:
    log = snapshot.log
    entered = ConsumeQueues(files, snapshot.path, log)
    copy = _Copy(log, fresh, sizes.segment_bytes, _stop(files, snapshot.path, log), entered)
    copy.run()
    early = early_end(copy.newest_ms, flushed_ms(files, snapshot.path))
    if early is not None:
        _log.warning("%s: %s. Is another directory in the broker's storePathCommitLog?", snapshot.path, early)
    _copy_configuration(files, snapshot.path, fresh)
    copied = Snapshot.open(fresh.place(""), queue_source=QueueSource.COMMIT_LOG)
    made = write_queues(copied, fresh.place(CONSUME_QUEUE), sizes.queue_segment_entries, entered=entered)
    corrected, queues = copy.correct(copied.log, made.corrected), made.report()
    keys = 0
    if keeps_index(files, snapshot.path):
        keys = write_index(copied, fresh.place(INDEX), Geometry(sizes.index_slots, sizes.index_entries))
    made_files = description(fresh.place(""), copy.end, copy.newest_ms, sizes)
    name = StorePaths("").timer_check
    check = read_whole(files, fresh.place(name), DOCUMENT_BYTES_MAX)
    if check is not None:
        made_files[name] = timer_check_of(Snapshot.open(fresh.place("")), check)
    for name, data in made_files.items():
        fresh.write(name, 0, data, file_bytes=len(data))
    return SalvageReport(
        records=copy.records,
        lost_spans=copy.lost_spans,
        lost_bytes=copy.lost_bytes,
        dropped=copy.dropped,
        corrected=corrected,
        left_out=queues.left_out,
        queues=queues.queues,
        entries=queues.entries,
        lost_messages=queues.lost_messages,
        keys=keys,
    )


def _copy_configuration(fs: FileSystem, source: str, fresh: FreshDirectory) -> None:
    """Copy ``config``, where a broker keeps topics and consumer offsets, and the messages of its compacted topics."""
    for listed in fs.list_dir(source):
        if listed.name in {CONFIG, COMPACTION} and listed.is_dir:
            _copy_files(fs, os.path.join(source, listed.name), fresh, listed.name)


def _copy_files(fs: FileSystem, source: str, fresh: FreshDirectory, name: str) -> None:
    """Copy the plain files of a directory and its subdirectories."""
    # Links, FIFOs and devices are left out: a device may have no end, and a link leads out of the store.
    for listed in fs.list_dir(source):
        path, inside = os.path.join(source, listed.name), os.path.join(name, listed.name)
        if listed.is_dir:
            _copy_files(fs, path, fresh, inside)
        elif listed.is_file:
            for at in range(0, max(listed.size, 1), _COPY_BYTES):
                data = fs.read(path, at, _COPY_BYTES)
                if not at or data.strip(b"\0"):  # files of compacted topics are large and mostly empty
                    fresh.write(inside, at, data, file_bytes=listed.size)
        else:
            _log.warning("%s is not copied: it is not a plain file", path)


def _stop(files: LocalFileSystem, path: str, log: CommitLog) -> int:
    """Physical offset where the log ends, without a batch that is not in the ledger, or that a replica has in part."""
    stop = log.data_stop()
    if not is_signed(StorePaths(path).lock):
        return stop  # a broker that had the store since does not know of batches: all of its log are messages
    records = BatchRecords(files, path)
    mark, incoming = records.mark(), records.incoming()
    starts = [mark.start] if records.pending(mark) else []
    starts += [incoming.start] if incoming.in_flight else []
    end = min([stop, *starts])
    if end < stop:
        _log.warning("%s: the copy ends at physical offset %d, where a batch begins that is not whole", path, end)
    return end


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


class _Copy:
    """The log on its way into a new directory."""

    def __init__(
        self, log: CommitLog, fresh: FreshDirectory, segment_bytes: int, stop: int, entered: ConsumeQueues
    ) -> None:
        self._log = log
        self._stop = stop
        self._entered = entered
        self._fresh = fresh
        self._bytes = segment_bytes
        self.records = self.lost_spans = self.lost_bytes = self.dropped = 0
        self.end = log.min_offset
        self.newest_ms = 0

    def run(self) -> None:
        segments = {segment.base: segment for segment in self._log.segments}
        first = min(segments)
        last = max((base for base in segments if base < self._stop), default=first)
        for base in range(first, last + 1, self._bytes):
            is_ended = False
            if base in segments:
                is_ended = self._segment(segments[base], is_last=base == last)
            else:
                self._fill(base, 0, self._bytes - BLANK_BYTES, self.newest_ms)
                self._blank(base, self._bytes - BLANK_BYTES)
                self._count_lost(self._bytes)
            number, count = (base - first) // self._bytes + 1, (last - first) // self._bytes + 1
            log_segment(_log, base, number, count, f"{self.records} records so far")
            if is_ended:
                break

    def _segment(self, segment: SegmentFile, *, is_last: bool) -> bool:
        """Copy the records of a segment; True if it is the last one."""
        view = self._log.view(segment)
        hi = max(0, min(view.size, self._stop - segment.base))
        walked = walk(view, segment.base, 0, hi)
        self._log.check_crcs(segment, walked.records)
        whole = walked.records.problem == Problem.OK
        found = FoundRecords(segment, walked.records if whole.all() else walked.records.take(whole))
        stale, _ = stale_rows(found, self.newest_ms)
        if stale.size and self._is_held(found.records.take(slice(int(stale[0]), None)), segment):
            stale = stale[:0]  # of a broker whose clock was set back
        if stale.size:
            # They follow the end of the log after a truncation. No reader shows them, and no message is theirs.
            _log.warning("%s: the log ends before %d older records", segment.path, len(found.records) - int(stale[0]))
            self.dropped += len(found.records) - int(stale[0])
            found, is_last = FoundRecords(segment, found.records.take(slice(int(stale[0])))), True
        at = self._runs(found)
        if not is_last or (walked.blank and not stale.size):
            records_end = int(walked.positions[-1] + walked.sizes[-1]) if walked.sizes.size else 0
            self._finish(segment.base, at, records_end if walked.blank else None)
            return is_last
        self.end = segment.base + at
        if hi > at:
            self._count_lost(hi - at)
        return True

    def _runs(self, found: FoundRecords) -> int:
        """Copy the records of a segment and fill the gaps between them; return where they end."""
        records, base = self._spaced(found.records), found.segment.base
        starts, stops = records.positions, records.positions + records.field("total_size")
        times = np.maximum.accumulate(records.field("store_timestamp"))
        self.records += starts.size - int(np.count_nonzero(is_filler(records)))
        before_ms, at = self.newest_ms or int(times[:1].sum()), 0
        edges = np.flatnonzero(np.append(-1, stops[:-1]) != starts).tolist()  # first of each run of neighbours
        for row, after in pairwise([*edges, starts.size]):
            if starts[row] > at:
                self._fill(base, at, int(starts[row]) - at, before_ms)
                self._count_lost(int(starts[row]) - at)
            at = int(stops[after - 1])
            self._copy(base, records.buffer, int(starts[row]), at)
            before_ms = max(before_ms, int(times[after - 1]))
        self.newest_ms = before_ms
        return at

    def _is_held(self, records: Records, segment: SegmentFile) -> bool:
        """Tell whether the ConsumeQueues of the source hold one of these records."""
        return any(
            (self._entered.queue(key).offsets_of(derived.physical_offset, derived.size) >= 0).any()
            for key, derived in all_entries_of(FoundRecords(segment, records))
        )

    def correct(self, copied: CommitLog, offsets: Sequence[tuple[int, int]]) -> int:
        """Write the right queue offset into headers of records without a checksum; return the number of records."""
        count = 0
        for physical, queue_offset in offsets:
            segment = copied.find(physical)
            assert segment is not None
            view, position = copied.view(segment), physical - segment.base
            stop = position + int.from_bytes(view[position : position + 4].tobytes(), "big")
            if not ends_in_crc(view, np.array([stop]))[0]:  # the checksum proves the number of a broker
                data = queue_offset.to_bytes(8, "big")
                self._fresh.write(self._name(segment.base), position + _QUEUE_OFFSET_AT, data, file_bytes=self._bytes)
                count += 1
        return count

    def _finish(self, base: int, at: int, records_end: int | None) -> None:
        """End a segment that another one follows: the gap after its last whole record is filled."""
        # `records_end` is where the blank of the source is; None if it is lost, and records may be lost up to the end.
        # Without a filler nothing would show that messages were here, and messages of later segments would move up.
        stop = self._bytes - BLANK_BYTES if records_end is None else records_end
        if stop > at:
            self._count_lost((self._bytes if records_end is None else stop) - at)
        if stop - at >= MIN_RECORD_BYTES:
            self._fill(base, at, stop - at, self.newest_ms)
            at = stop
        self._blank(base, at)
        self.end = base + self._bytes

    def _spaced(self, records: Records) -> Records:
        """Drop records after a gap that is shorter than any record: nothing can be written into it."""
        while True:
            gaps = records.positions - np.append(0, (records.positions + records.field("total_size"))[:-1])
            small = np.flatnonzero((gaps > 0) & (gaps < MIN_RECORD_BYTES))
            if not small.size:
                return records
            self.dropped += 1
            records = records.take(np.delete(np.arange(len(records)), small[0]))

    def _count_lost(self, count: int) -> None:
        self.lost_spans += 1
        self.lost_bytes += count

    def _name(self, base: int) -> str:
        return os.path.join(COMMIT_LOG, segment_name(base))

    def _copy(self, base: int, view: Bytes, start: int, stop: int) -> None:
        for at in range(start, stop, _COPY_BYTES):
            piece = view[at : min(at + _COPY_BYTES, stop)].tobytes()
            self._fresh.write(self._name(base), at, piece, file_bytes=self._bytes)

    def _fill(self, base: int, position: int, size: int, before_ms: int) -> None:
        """Write a record over damage: with the store time of the record before it, so that store times do not fall."""
        host = pack_host(b"\x7f\0\0\1", 0)
        spare = size - _FILLER_BYTES
        record_crc = RecordCrc.PROPERTY if spare >= RECORD_CRC_BYTES else RecordCrc.ABSENT
        body_bytes = max(spare - (RECORD_CRC_BYTES if record_crc is RecordCrc.PROPERTY else 0), 0)
        record = encode_record(
            topic=FILLER_TOPIC[: size - MIN_RECORD_BYTES],
            body=bytes(body_bytes),
            properties=b"",
            queue_id=0,
            flag=0,
            sys_flag=SYS_ROLLBACK,
            born_timestamp=before_ms,
            born_host=host,
            store_host=host,
            record_crc=record_crc,
        )
        patch_record(
            record,
            queue_offset=0,
            physical_offset=base + position,
            store_timestamp=max(before_ms, 1),
            record_crc=record_crc,
        )
        self._fresh.write(self._name(base), position, bytes(record), file_bytes=self._bytes)

    def _blank(self, base: int, position: int) -> None:
        self._fresh.write(self._name(base), position, blank_record(self._bytes - position), file_bytes=self._bytes)
