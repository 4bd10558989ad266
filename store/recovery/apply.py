"""Repair of a store's files on open, as `decide` decided.

::

    cut        log after the end: later segments unlinked, zeros in its own; all of it synced
    redispatch queues   ours: written again in place from the durable point on, so that readers lose no message; a
                        broker's: compared with the log. After the last entry zeros
               index    ours: from the durable point on written again; a broker's: its full files stay

Before, the durable point was lowered to the end and ``abort`` is there; afterwards it is raised. A crash anywhere in
between leaves a store that is decided about the same way. RocketMQ: ``truncateDirtyFiles``,
``truncateDirtyLogicFiles``, ``doDispatch`` in recovery.
"""

from collections.abc import Mapping
from typing import Final

from ..config import StoreConfig
from ..dispatch.derive import DerivedQueue, derive_segments
from ..dispatch.entry_placement import Placement
from ..files.segments import SegmentFile
from ..files.writable_fs import WritableFileSystem
from ..format.index_file import IndexPosition
from ..index.writer import IndexWriter, put_keys
from ..log.commit_log import CommitLog
from ..log.log_end import LogState, examine_log
from ..queues.writer import QueueWriter
from ..types import QueueKey
from .durability import Durability

_BLOCK_BYTES: Final = 1 << 20
_SEARCH_ENTRIES: Final = 1 << 16


class Repair:
    """The repair of one store that is being opened; its queues and index are not opened yet."""

    def __init__(
        self,
        fs: WritableFileSystem,
        path: str,
        config: StoreConfig,
        *,
        durability: Durability,
        queues: QueueWriter,
        index: IndexWriter | None,
    ) -> None:
        self._fs = fs
        self._path = path
        self._config = config
        self._durability = durability
        self._durable = durability.found
        self._queues = queues
        self._index = index
        self._log = CommitLog.of_store(fs, path)
        self._last_physical = -1  # of the last record that has an entry, once the ends of the queues are known

    def examine(self) -> LogState:
        """Look at the log from where something can be missing or torn."""
        durable = self._durable
        if durable is None:
            return examine_log(self._log, self._log.min_offset)
        _, start = self._kept_index(durable.queues)
        return examine_log(self._log, max(self._log.min_offset, start), self._durability.sealed_from)

    # -- the log

    def cut(self, end: int) -> int:
        """End the log at a physical offset, on the device; return at most how many later bytes were not zero."""
        # Later files are unlinked, later bytes of its own segment become zero.
        durable_log = self._durable.log if self._durable is not None else 0
        cut = 0
        for empty in self._log.empty:
            if empty.base >= end:  # an earlier one is damage before records that are kept
                self._fs.unlink(empty.path)
        for segment in reversed(self._log.segments):
            if segment.base >= end:
                cut += self._fs.data_end(segment.path)
                self._fs.unlink(segment.path)
            elif segment.stop > min(durable_log, end):
                cut += self._settle(segment, end)
            else:
                break
        if self._log.segments or self._log.empty:
            for directory in self._log.directories:
                self._fs.sync_dir(directory)
        self._log = CommitLog.of_store(self._fs, self._path)
        return cut

    def _settle(self, segment: SegmentFile, end: int) -> int:
        """Zero the bytes after the end of one segment, and sync the others; see `cut`."""
        position = min(end - segment.base, self._config.segment_bytes)
        data = self._fs.data_end(segment.path)
        file = self._fs.open(segment.path)
        try:
            if segment.size < self._config.segment_bytes:
                file.allocate(self._config.segment_bytes)
            for at in range(position, data, _BLOCK_BYTES):
                file.write(at, bytes(min(_BLOCK_BYTES, data - at)))
            if self._durability.was_ours and self._durable is not None:
                # What a failed sync left looks well in the page cache, and is clean there: no sync would write it.
                for at in range(max(self._durable.log - segment.base, 0), position, _BLOCK_BYTES):
                    count = min(_BLOCK_BYTES, position - at)
                    file.write(at, self._fs.read(segment.path, at, count))
            file.sync()
        finally:
            file.close()
        return max(data - position, 0)

    # -- queues and index

    def redispatch(self, state: LogState, end: int) -> tuple[dict[QueueKey, int], int]:
        """Dispatch the log again to queues and index; return the queue ends, and the number of wrong entries."""
        durable = self._durable
        kept = end if durable is None else max(min(durable.queues, end), self._log.min_offset)
        keys = list(self._queues.queues())
        ends, self._last_physical = self._queues.ends_below(keys, kept, self._log)
        # Nothing else tells that queues, or files of them, were deleted.
        adopted = durable is None or (durable.queues <= end and sum(ends.values()) != durable.entries)
        resume = self._log.min_offset if adopted else kept
        start = max(min(state.start, resume, self._open_index(end)), self._log.min_offset)
        placement = Placement(self._log, start, {} if adopted else ends)
        corrected = 0
        for found, derived in derive_segments(self._log, start, end) if start < end else ():
            behind = {key: queue for key, each in derived.items() if (queue := _behind(each, resume)).size.size}
            if adopted:
                self._begin_where_they_do(placement, behind)
            for key, placed in placement.place(found, behind):
                if not placed.entries.size:
                    continue
                if adopted:
                    corrected += self._queues.correct(key, placed.start, placed.entries)
                else:  # an equal entry may be a clean page that is not on the device: no sync would write it
                    self._queues.append(key, placed.start, placed.entries)
                    self._queues.doubt_names(key)
            if self._index is not None:
                put_keys(self._index, found.records, found.segment.base + found.records.positions)
        placed_ends = placement.ends
        for key in keys:
            self._queues.truncate(key, max(ends.get(key, 0), placed_ends.get(key, 0)))
        self._queues.sync()
        if self._index is not None:
            self._index.sync()
        return ends | placed_ends, corrected

    def _begin_where_they_do(self, placement: Placement, queues: Mapping[QueueKey, DerivedQueue]) -> None:
        """Let queues that were taken over begin where their first record stands in them, if it does."""
        # 5.0 to 5.1.0 burn queue offsets: a record may state another queue offset than that of its entry.
        for key in queues.keys() - placement.ends.keys():
            stated, physical = int(queues[key].queue_offset[0]), int(queues[key].physical_offset[0])
            first = self._queues.find(key, physical, max(0, stated - _SEARCH_ENTRIES), stated + 1)
            if first is not None:
                placement.begin(key, first, physical)

    def _open_index(self, end: int) -> int:
        """Open the part of the index that is kept; return the physical offset from which its keys are missing."""
        kept, start = self._kept_index(end)
        if self._index is not None:
            self._index.drop_from(kept.file + 1 if kept is not None else 0)
            if kept is not None:
                self._index.open(kept, self._log, was_closed=self._durability.was_closed)
        return start

    def _kept_index(self, end: int) -> tuple[IndexPosition | None, int]:
        """Return the end of the index that is kept, None for none, and from which physical offset keys are missing."""
        durable = self._durable
        if self._index is None:
            return None, end
        # If a batch is undone, the queues may have been flushed beyond the end: the newest file has keys of the batch.
        marked = durable if durable is not None and durable.queues <= end else None
        if marked is not None and marked.index_count > 1:
            position = IndexPosition(marked.index_file, marked.index_count)
            if self._index.has(position):
                return position, end
        files = self._full_files(end)
        if files:
            last = IndexPosition(files[-1], self._config.index_entries)
            return last, self._index.header_of(last.file).end_physical_offset
        had_no_keys = durable is not None and not durable.index_file
        return None, end if had_no_keys else 0

    def _full_files(self, stop: int) -> list[int]:
        """Index files that are full, were synced, and end before a physical offset, up to the first that does not."""
        # Our index files before the marked one are synced; a broker's are up to the time in its checkpoint.
        assert self._index is not None
        kept: list[int] = []
        reached = 0
        for name in self._index.names():
            header = self._index.header_of(name)
            if self._durable is not None:
                synced = name < self._durable.index_file
            else:
                checkpoint = self._durability.checkpoint
                synced = not self._durability.was_aborted or header.end_timestamp <= checkpoint.index_timestamp
            if not synced or header.count < self._config.index_entries:
                break
            if not reached <= header.end_physical_offset < stop:
                break
            reached = header.end_physical_offset
            kept.append(name)
        return kept

    def newest_timestamp(self, state: LogState) -> int:
        """Store time in ms of the last record of the log; 0 if there is none."""
        last = self._log.store_time_at(self._last_physical) if self._last_physical >= 0 else None
        return max(state.newest, last or 0)


def _behind(derived: DerivedQueue, start: int) -> DerivedQueue:
    """Entries of records from a physical offset on."""
    if derived.physical_offset.size and derived.physical_offset[0] >= start:
        return derived
    return derived.take(derived.physical_offset >= start)
