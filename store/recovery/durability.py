"""Durability records of a store: how much of it is on the device, and whether it was closed.

::

    open      abort made, root synced ──► recovery ──► durable point, synced
    flush     log synced ──────────────────────────► durable point (log)
              queues, index synced ──► checkpoint ──► durable point (queues), synced
    close     all of it ──► durable point (clean), synced ──► abort unlinked, root synced

Each is written after the data it describes. RocketMQ: ``StoreCheckpoint``, ``DefaultMessageStore.createTempFile``.
"""

import os
import threading
from dataclasses import replace
from typing import Any

from ..config import StoreConfig
from ..directory.own_state import ABORT_SIGNATURE, OwnState
from ..errors import StoreClosedError
from ..files.small_file import replace_file
from ..files.writable_fs import WritableFile, WritableFileSystem
from ..format import checkpoint as checkpoints
from ..format import durable_point
from ..format.durable_point import DurablePoint, FileSizes
from ..format.index_file import IndexPosition
from ..format.store_paths import StorePaths


class Durability:
    """Reads and writes ``.segmentlog/durable``, ``checkpoint`` and ``abort`` of one store."""

    # `was_ours` is whether the lock says that no broker had it open since we last had. The file `abort` tells too, but
    # 4.x leaves an existing one as it is.

    def __init__(self, fs: WritableFileSystem, path: str, config: StoreConfig, *, was_ours: bool) -> None:
        self._fs = fs
        self._path = path
        self._paths = StorePaths(path)
        self._lock = threading.Lock()
        self._file: WritableFile | None = None
        self._synced_at = self._written_at = 0
        """Positions in the file: of the slot that was synced last, and of the one that was written last."""
        found = OwnState.read(fs, path, is_signed=was_ours)
        self.found = found.point  # the durable point when the store was opened; None if it has none
        self.point = self.found or DurablePoint()
        self.checkpoint = found.checkpoint
        self.was_aborted = found.was_aborted  # True if the store was not closed
        self.was_closed = was_ours and not found.was_aborted and found.point is not None and found.point.clean
        """True if our close was the last thing that any process did to it."""
        self.was_ours = found.was_ours
        """True if it was not closed by us, so that no broker wrote it since the durable point."""
        self.sealed_from = found.sealed_from  # see `OwnState.sealed_from`
        self._record_crc = config.record_crc
        self._sizes = FileSizes(
            config.segment_bytes, config.queue_segment_entries, config.index_slots, config.index_entries
        )

    def begin(self, log_end: int) -> None:
        """Say that the store is open, and that its log ends at a physical offset, before anything is changed."""
        fs, paths = self._fs, self._paths
        for directory in (paths.ours, *paths.log_directories, paths.consume_queues, paths.index, paths.config):
            fs.make_dir(directory)
        replace_file(fs, paths.abort, b"%d%s" % (os.getpid(), ABORT_SIGNATURE), self.making)
        fs.sync_dir(self._path)
        for unfinished in (paths.making_segment, paths.making_queue_file, paths.making_index_file):
            fs.unlink(unfinished)
        if fs.size(paths.durable_point) != durable_point.FILE_BYTES:
            replace_file(fs, paths.durable_point, bytes(durable_point.FILE_BYTES), self.making)
        self._file = fs.open(paths.durable_point)
        if self.found is not None:
            # What was found may be in the page cache only, and clean there after a sync that failed.
            self._written_at = durable_point.position_of(fs.read(paths.durable_point, 0, durable_point.FILE_BYTES))
            self._file.write(self._written_at, durable_point.encode(self.found))
            self._sync(self._file)
            # After a crash in between, cut records must not count as lost, nor a broker's records as torn.
            held = self.point
            file = self._note(
                log=min(held.log, log_end),
                queues=min(held.queues, log_end),
                clean=False,
                has_record_crc=held.has_record_crc and self.was_ours,
            )
            self._sync(file)

    @property
    def making(self) -> str:
        """Path where a small file is written before it gets its name."""
        return self._paths.making_state

    def note_log(self, end: int) -> None:
        """Say that the log is on the device up to a physical offset."""
        # Not synced: a crash of the machine may leave an older point, which is a lower bound as well.
        with self._lock:
            self._note(log=end)

    def note_queues(self, end: int, entries: int, index_end: IndexPosition, newest_ms: int, index_ms: int) -> None:
        """Record that queues and index have the records up to a physical offset on the device."""
        # The first call ends an opening. From then on all records after the point are as `config` has it; until then
        # they are those of the former writer. `entries` is the sum of the ends of all queues, `newest_ms` the store
        # time of the last record. `index_ms` is the end of the last index file that was filled, 0 if no file was filled
        # since the store was opened.
        self.checkpoint = replace(
            self.checkpoint,
            physic_timestamp=newest_ms,
            logics_timestamp=newest_ms,
            index_timestamp=index_ms or self.checkpoint.index_timestamp,
        )
        replace_file(self._fs, self._paths.checkpoint, checkpoints.encode(self.checkpoint), self.making)
        with self._lock:
            file = self._note(
                log=max(self.point.log, end),
                queues=end,
                entries=entries,
                index_file=index_end.file,
                index_count=index_end.next_number,
                has_record_crc=self._record_crc,
                sizes=self._sizes,
            )
            self._sync(file)

    def note_closed(self) -> None:
        """Say that the store was closed: the last thing that is written."""
        with self._lock:
            self._sync(self._note(clean=True))
        self._fs.unlink(self._paths.abort)
        self._fs.sync_dir(self._path)

    def close(self) -> None:
        """Close the file; nothing is noted any more."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _note(self, **changes: Any) -> WritableFile:
        """Write the durable point with some fields changed, and return its file; needs the lock."""
        file = self._file
        if file is None:
            raise StoreClosedError("this store was closed", path=self._path, fix="Open it")
        self.point = replace(self.point, sequence=self.point.sequence + 1, **changes)
        # Never into the slot that was synced last: a write that is torn leaves that one.
        self._written_at = durable_point.SLOT_BYTES - self._synced_at
        file.write(self._written_at, durable_point.encode(self.point))
        return file

    def _sync(self, file: WritableFile) -> None:
        file.sync()
        self._synced_at = self._written_at
