"""Salvage: the whole records of a damaged store, copied into a new store that a broker can continue.

::

    damaged   [rec][rec]########[rec][rec]#####      [rec]
    copy      [rec][rec][filler][rec][rec][B…]       [rec]         B blank: the segment ends here
                         ▲ one record over the damaged bytes, of a transaction that was rolled back: in no queue

Every whole record keeps its physical offset. Queues and index are rebuilt from the copied log.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from ..config import StoreConfig
from ..directory.archive import check_beside
from ..directory.file_sizes import check_segment_bytes, stored_sizes
from ..directory.layout import refuse_dledger
from ..directory.own_state import ELSEWHERE, early_end, read_checkpoint
from ..dispatch.derive import all_entries_of, stale_rows
from ..errors import ConfigError
from ..files.fresh_directory import FreshDirectory
from ..files.fs import FileSystem, LocalFileSystem, absolute
from ..files.segments import SegmentFile
from ..files.small_file import DOCUMENT_BYTES_MAX, read_whole
from ..files.store_lock import is_signed
from ..format.checksums import RecordCrc, ends_in_crc
from ..format.durable_point import FileSizes
from ..format.index_file import Geometry
from ..format.message import (
    BLANK_BYTES,
    FILLER_TOPIC,
    MIN_RECORD_BYTES,
    RECORD_CRC_BYTES,
    SYS_ROLLBACK,
    Bytes,
    Problem,
    Records,
    blank_record,
    is_filler,
)
from ..format.message_encode import encode_record, pack_host, patch_record
from ..format.naming import segment_name
from ..format.store_paths import COMMIT_LOG, COMPACTION, CONFIG, CONSUME_QUEUE, INDEX, StorePaths
from ..format.walk import walk
from ..log.batch_state import BatchRecords
from ..log.commit_log import CommitLog, FoundRecords
from ..queues.consume_queues import ConsumeQueues
from ..read.snapshot import Snapshot
from ..types import QueueSource
from .copied_timers import timer_check_of
from .index_check import keeps_index
from .log_parts import log_segment
from .rebuild import description, write_index, write_queues

_log = logging.getLogger(__name__)

_FILLER_BYTES: Final = MIN_RECORD_BYTES + len(FILLER_TOPIC)
_COPY_BYTES: Final = 8 << 20
_QUEUE_OFFSET_AT: Final = 20  # in a record


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
    early = early_end(copy.newest_ms, read_checkpoint(files, snapshot.path).physic_timestamp)
    if early is not None:
        _log.warning("%s: %s. %s", snapshot.path, early, ELSEWHERE)
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
