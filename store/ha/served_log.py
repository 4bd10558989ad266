"""Served log: the end of a log and its batches, as a server sends them while other processes append.

::

    sinks, writers ──► append ──► flush ──► .segmentlog/durable    log = what is on the device
                       batch  ──► commit ─► .segmentlog/batch      in flight from P
                                                  │
    settled = durable.log, and never beyond P     ▼
    server  ◄── FollowedLog.settled_offset: two small files are read; no lock is taken and no record is examined

    master    batch in flight ──► ledger ──► no longer in flight ──► end of the log moves over it
    server    end of the log, then the history up to the ledger's newest batch        `HistoryFeed.read_changes`
    wire      [whole history] … [lines that were appended] … [frames of the log up to that end]
    replica   .segmentlog/batches onto the device, then the log                       `IncomingBatches`

    content   [line][line][line]│[line]      the newest batch of the ledger is written to the file with the next commit:
              └ file             └ ledger    the same bytes, so sent lines stay valid

Bytes that are on the device, and outside a batch in flight, survive a killed writer and a power cut. So no replica is
ever ahead of its master. The end of a `MessageStore` in this process is known without these files. RocketMQ's slaves
get no history.
"""

import os
from typing import Final

from ..config import StoreConfig
from ..directory.layout import refuse_dledger, require_store
from ..errors import NotAStoreError, ReplicationError
from ..files.fs import FileSystem, LocalFileSystem
from ..files.small_file import ReplacedFile, read_front
from ..files.store_lock import is_signed
from ..files.writable_fs import WritableFileSystem
from ..format import durable_point
from ..format.batch_history import TITLE_BYTES, decode_title, newest_line
from ..format.store_paths import StorePaths
from ..log.batch_state import BatchRecords

_LOOKS: Final = 4  # reads of both files until they agree; batches may begin between the reads


class FollowedLog:
    """Log of a store of segmentlog that this process does not open. Not thread-safe.

    `NotAStoreError` if the directory has no such store: a broker serves its store itself.
    """

    def __init__(self, path: str | os.PathLike[str], fs: FileSystem | None = None) -> None:
        self.path = os.path.abspath(path)
        """Store directory, absolute."""
        self._fs = fs or LocalFileSystem()
        self._paths = StorePaths(self.path)
        self._batches = BatchRecords(self._fs, self.path)
        refuse_dledger(self._fs, self.path, "this store cannot be served")
        point = self._point()
        if point is None or not point.sizes.segment_bytes or not is_signed(self._paths.lock):
            require_store(self.path, self._fs)
            raise NotAStoreError(
                "no store that segmentlog wrote last is here, so its end is not known",
                path=self.path,
                fix="Write to it once, as by `segmentlog put`. A broker serves replicas itself",
            )
        self.config = StoreConfig(segment_bytes=point.sizes.segment_bytes)
        """Configuration of the store, as far as a server needs it."""
        self._sequence = self._settled = 0

    @property
    def end_offset(self) -> int:
        """Last `settled_offset`: the physical offset up to which replicas may have the log."""
        return self._settled

    @property
    def settled_offset(self) -> int:
        """Physical offset up to which the log is on the device, without a batch in flight."""
        # A writer that cut the log below an offset that was returned before is a ReplicationError.
        before = None
        for _ in range(_LOOKS):
            point = self._point()  # before the mark: a batch is marked before any of it is on the device
            mark = self._batches.mark()
            if point is None or point.log >= mark.start or point == before:
                break
            # A batch began since, with all before it on the device: the point may be within an earlier batch. It stays
            # before the mark only in a store whose writer does not sync.
            before = point
        else:
            return self._settled
        if point is None or point.sequence < self._sequence:
            return self._settled  # read while it was written
        # The point may name an offset within a batch that was committed after the point was read.
        is_within = mark.in_flight or mark.start < point.log < mark.stop
        settled = min(point.log, mark.start) if is_within else point.log
        if settled < self._settled:
            raise ReplicationError(
                f"the log was cut from physical offset {self._settled} to {settled}, and replicas may hold more",
                path=self.path,
                fix="Compare the replicas with it, and start the server again",
            )
        self._sequence, self._settled = point.sequence, settled
        return settled

    def _point(self) -> durable_point.DurablePoint | None:
        data = read_front(self._fs, self._paths.durable_point, durable_point.FILE_BYTES)
        return None if data is None else durable_point.decode(data)


class HistoryFeed:
    """Lines of the history of a store that other threads or processes write. Not thread-safe."""

    def __init__(self, fs: WritableFileSystem, path: str) -> None:
        self._fs = fs
        self._records = BatchRecords(fs, path)
        self._history_path = StorePaths(path).batch_history
        self._ledger, self._history = (ReplacedFile(fs, each) for each in (StorePaths(path).ledger, self._history_path))
        self._file_size: int | None = -1  # at the last call that succeeded
        self._is_other = False  # whether the file was replaced since then
        self._in_file = 0  # bytes of lines in the file
        self._newest = b""  # line of the ledger's newest batch, if the file may lack it
        self.generation = 0  # number of times that the whole history was replaced

    @property
    def size(self) -> int:
        """Bytes of all lines, as of the last `read_changes`."""
        return self._in_file + len(self._newest)

    def read_changes(self) -> None:
        """Read the ledger and the history if one of them changed; otherwise some system calls."""
        self._is_other |= self._history.look()
        size = self._fs.size(self._history_path)
        if not self._ledger.look() and not self._is_other and size == self._file_size:
            return
        self._file_size = -1
        ledger = self._records.ledger()
        front = read_front(self._fs, self._history_path, TITLE_BYTES)
        if front is not None and (title := decode_title(front, self._history_path)).generation > ledger.generation:
            self._in_file, self._newest = (size or TITLE_BYTES) - TITLE_BYTES, b""  # of a replica
        else:
            self._in_file = ledger.recorded - (title.dropped if front is not None else 0)
            self._newest = newest_line(ledger)
        self.generation += self._is_other
        self._file_size, self._is_other = size, False

    def lines_from(self, position: int) -> bytes:
        """Return the whole lines from a position on, up to `size`."""
        data = b""
        if position < self._in_file:
            data = self._fs.read(self._history_path, TITLE_BYTES + position, self._in_file - position)
        data += self._newest[max(position - self._in_file, 0) :]
        return data[: data.rfind(b"\n") + 1]

    def close(self) -> None:
        self._ledger.close()
        self._history.close()
