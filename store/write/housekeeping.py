"""Housekeeping of an open store: dispatch, flush, and pre-allocation of the next segment.

::

    put ──► log ──► sync_log ──► dispatch ──► flush_queues ──► durable point, checkpoint, topics.json
                       ▲            ▲              ▲
                    group commit    │              └ after a GiB of log, or a minute
                    or a timer      └ after each put, of the records that may be visible

Run by the threads of the store, or by the calls that put; each kind of work by one thread at a time. RocketMQ:
``FlushRealTimeService``, ``ReputMessageService``, ``FlushConsumeQueueService``.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from ..config import Flush, StoreConfig
from ..dispatch.dispatcher import Dispatcher
from ..errors import StoreClosedError
from ..files.segments import SegmentFile
from ..files.writable_fs import WritableFileSystem
from ..format.index_file import EMPTY_INDEX
from ..log.appender import LogAppender, SegmentSupply
from ..recovery.open import Opened
from ..retention.state import FileId, Kind
from .failure import Failure
from .group_commit import Flusher
from .metrics import WriterMetrics

_PAGE: Final = 4096
_BACKLOG_BYTES: Final = 64 << 20  # records that wait to be dispatched; with more of them appends wait, too


class Housekeeping:
    """Background work of one open store. Thread-safe.

    Parameters
    ----------
    config
        Intervals and thresholds of the work.
    opened
        The recovered parts of the store; at the end of its log everything is on the device.
    appender, supply, dispatcher, failure
        Further parts of the store.
    own
        Raises if another process has the store, and notes that as a failure.
    fs
        File system of the store.
    metrics
        Gets the seconds of each sync.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        opened: Opened,
        appender: LogAppender,
        supply: SegmentSupply,
        dispatcher: Dispatcher,
        failure: Failure,
        own: Callable[[], None],
        fs: WritableFileSystem,
        metrics: WriterMetrics | None = None,
    ) -> None:
        self.flusher = Flusher(self._sync_log, opened.log_end, failure, metrics)
        """Knows up to where the log is on the device."""
        self._config = config
        self._appender = appender
        self._supply = supply
        self._dispatcher = dispatcher
        self._queues = opened.queues
        self._index = opened.index
        self._durability = opened.durability
        self._topics = opened.topics
        self._marker = opened.marker
        self._failure = failure
        self._own = own
        self._fs = fs
        self._starved = False  # whether dispatch found no room
        self._stopped = False
        self._flushing_queues = threading.Lock()  # taken in this order
        self._dispatching = threading.Lock()
        self._syncing = threading.Lock()
        self._flushed_at = self._queues_flushed_at = time.monotonic()

    @property
    def is_behind(self) -> bool:
        """True if so many records wait to be dispatched that appends have to dispatch, too."""
        return self._dispatcher.waiting_bytes > _BACKLOG_BYTES

    def relieve(self) -> None:
        """Dispatch if a full disk stopped dispatch, and the log is far ahead of the queues by now.

        Raises
        ------
        NoSpaceError
            If the disk is still full: nothing may be appended.
        """
        if self._starved and self._appender.end - self._dispatcher.dispatched > _BACKLOG_BYTES:
            self.dispatch()

    def dispatch(self, *, at_once: bool = False) -> None:
        """Dispatch records that may be visible: with SYNC those that are flushed, or that a batch in flight hides.

        Parameters
        ----------
        at_once
            Whether all of them are visible afterwards; otherwise a few entries may wait for more.
        """
        with self._dispatching:
            self._check()
            waits = self._config.flush is Flush.SYNC and not self._marker.in_flight
            self._starved = True
            with self._failure.fatal_unless_full():
                self._dispatcher.run(self.flusher.flushed if waits else self._appender.end, at_once=at_once)
            self._starved = False

    def dispatch_flushed(self) -> None:
        """Dispatch everything that was put; with SYNC it is flushed first.

        Raises
        ------
        StoreFailedError
            If a flush failed, now or before.
        NoSpaceError
            If the disk has no room for the entries.
        """
        if self._config.flush is Flush.SYNC:
            self.flusher.wait(self._appender.end)
        self.dispatch(at_once=True)

    def keep(self) -> None:
        """Check the lock, flush the log and the queues if that is due, and allocate the next segment."""
        self._own()
        config, now = self._config, time.monotonic()
        if config.flush is Flush.ASYNC:
            waiting = self._appender.end - self.flusher.flushed
            elapsed = (now - self._flushed_at) * 1000
            due = waiting >= config.flush_least_pages * _PAGE and elapsed >= config.flush_interval_ms
            if waiting and (due or elapsed >= config.flush_thorough_interval_ms):
                self.flusher.wait(self._appender.end)
        ahead = self._dispatcher.dispatched - self._durability.point.queues
        elapsed = (now - self._queues_flushed_at) * 1000
        due = ahead >= config.queue_flush_log_bytes and elapsed >= config.queue_flush_interval_ms
        if ahead and (due or elapsed >= config.queue_flush_thorough_interval_ms):
            self.flush_queues()
        else:
            self.write_slots()
        self._supply.prepare()

    def write_slots(self) -> None:
        """Write the slots of the index, so that readers find the keys of dispatched records."""
        if self._index is not None:
            with self._dispatching:
                self._check()
                with self._failure.fatal_unless_full():
                    self._index.write_slots()

    def flush_queues(self) -> None:
        """Flush queues, index and checkpoint, and note in the durable point up to where."""
        with self._flushing_queues:
            self._failure.check()
            self.dispatch(at_once=True)
            with self._dispatching:
                reached, newest = self._dispatcher.dispatched, self._dispatcher.newest_timestamp
                self.flusher.wait(reached)
                if self._index is not None:
                    with self._failure.fatal_unless_full():
                        self._index.write_slots()
                with self._failure.fatal():
                    self._queues.sync()
                    if self._index is not None:
                        self._index.sync()
                mark = self._index.end if self._index is not None else EMPTY_INDEX
                keys = list(self._dispatcher.ends)  # new ones come meanwhile
                entries = sum(self._dispatcher.ends.values())
            full_ms = self._index.full_timestamp if self._index is not None else 0
            with self._failure.fatal_unless_full():
                self._topics.note(keys)
                self._durability.note_queues(reached, entries, mark, newest, full_ms)
            self._queues_flushed_at = time.monotonic()

    def remove(self, file: FileId, found: SegmentFile) -> None:
        """Delete an expired file; its records and entries are on the device first, so that recovery wants none of it.

        Raises
        ------
        ValueError
            If the file is written.
        """
        self._own()
        if file.kind is Kind.LOG:
            if found.stop > self._durability.point.queues:
                self.flush_queues()
            self._appender.drop(found)
            return
        with self._dispatching:
            self._check()
            if file.queue is not None:
                self._queues.drop(file.queue, found)
            elif self._index is not None:
                self._index.drop(file.base)
            else:  # an index of former times
                self._fs.unlink(found.path)
                self._fs.sync_dir(os.path.dirname(found.path))

    def stop(self) -> None:
        """Wait for the threads that dispatch or flush; afterwards neither is possible."""
        with self._flushing_queues, self._dispatching, self._syncing:
            self._stopped = True

    def _check(self) -> None:
        if self._stopped:
            raise StoreClosedError("this store was closed", path=self._failure.path, fix="Open it")
        self._failure.check()

    def _sync_log(self) -> int:
        with self._syncing:
            self._check()
            end = self._appender.sync()
            self._own()  # after the sync: its bytes were written before another process could have had the store
            self._flushed_at = time.monotonic()
            self._durability.note_log(end)
            return end
