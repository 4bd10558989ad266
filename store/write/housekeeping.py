"""Housekeeping of an open store: dispatch, flush and pre-allocation of the next segment, and the threads that run it.

::

    put ──► log ──► flusher ──► dispatch ──► flush_queues ──► durable point, checkpoint, topics.json
                       ▲           ▲              ▲
                    group commit   │              └ after a GiB of log, or a minute
                    or a timer     └ after each put, of the records that may be visible

    BackgroundServices
      dispatch   wait for work ──► dispatch ──► …          at once after a put, a hundred times per second at most
      flush      wait an interval ──► flush what is due ──► …            no other service delays it
      retention  wait an interval ──► delete what is due ──► …           if the store has retention
    OnCall       tick ──► …                                no threads: each put runs what is due

Each kind of work is done by one thread at a time. A full disk is waited out. Any other failure ends the threads, and
the store accepts nothing more. RocketMQ: ``ReputMessageService``, ``FlushRealTimeService``,
``FlushConsumeQueueService``, ``AllocateMappedFileService``.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from ..config import Flush, StoreConfig
from ..dispatch.dispatcher import Dispatcher
from ..errors import NoSpaceError, SegmentLogError, StoreClosedError
from ..files.segments import SegmentFile
from ..files.writable_fs import WritableFileSystem
from ..format.index_file import EMPTY_INDEX
from ..log.appender import LogAppender, SegmentSupply
from ..recovery.open import Opened
from ..retention.state import FileId, FileKind
from .attachments import WriterMetrics
from .group_commit import Failure, Flusher

_log = logging.getLogger(__name__)


_RETRY_S = 1.0
_ROUND_S = 0.01  # pause between two rounds of dispatch: a round costs much the same for one record as for a thousand
_PAGE: Final = 4096
_BACKLOG_BYTES: Final = 64 << 20  # records that wait to be dispatched; with more of them appends wait, too


class Housekeeping:
    """Background work of one open store. Thread-safe."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        opened: Opened,
        appender: LogAppender,
        supply: SegmentSupply,
        dispatcher: Dispatcher,
        failure: Failure,
        check_owned: Callable[[], None],
        fs: WritableFileSystem,
        metrics: WriterMetrics | None = None,
    ) -> None:
        self.flusher = Flusher(
            appender.sync,
            opened.log_end,
            failure,
            check_owned=check_owned,
            note=opened.durability.note_log,
            metrics=metrics,
        )
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
        self._check_owned = check_owned
        self._fs = fs
        self._starved = False  # whether dispatch found no room
        self._stopped = False
        self._flushing_queues = threading.Lock()  # taken in this order
        self._dispatching = threading.Lock()
        self._queues_flushed_at = time.monotonic()

    def keep_up(self) -> None:
        """Dispatch in the calling thread, which appends, if much waits for that; `NoSpaceError` if there is no room."""
        ahead = self._appender.end - self._dispatcher.dispatched if self._starved else self._dispatcher.waiting_bytes
        if ahead > _BACKLOG_BYTES:
            self.dispatch()

    def dispatch(self, *, at_once: bool = False) -> None:
        """Dispatch records that may be visible: with SYNC flushed records, and records that a batch in flight hides."""
        with self._dispatching:
            self._check()
            waits = self._config.flush is Flush.SYNC and not self._marker.in_flight
            try:
                with self._failure.fatal_unless_full:
                    self._dispatcher.run(self.flusher.flushed if waits else self._appender.end, at_once=at_once)
            except NoSpaceError:
                self._starved = True
                raise
            self._starved = False

    def dispatch_flushed(self) -> None:
        """Dispatch everything that was put; with SYNC it is flushed first."""
        if self._config.flush is Flush.SYNC:
            self.flusher.wait(self._appender.end)
        self.dispatch(at_once=True)

    def run_due(self) -> None:
        """Check the lock, flush the log and the queues if that is due, and allocate the next segment."""
        self._check_owned()
        config, now = self._config, time.monotonic()
        if config.flush is Flush.ASYNC:
            waiting = self._appender.end - self.flusher.flushed
            elapsed = (now - self.flusher.flushed_at) * 1000
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
                with self._failure.fatal_unless_full:
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
                    with self._failure.fatal_unless_full:
                        self._index.write_slots()
                with self._failure.fatal:
                    self._queues.sync()
                    if self._index is not None:
                        self._index.sync()
                mark = self._index.end if self._index is not None else EMPTY_INDEX
                keys = list(self._dispatcher.ends)  # new ones come meanwhile
                entries = sum(self._dispatcher.ends.values())
            full_ms = self._index.full_timestamp if self._index is not None else 0
            with self._failure.fatal_unless_full:
                self._topics.note(keys)
                self._durability.note_queues(reached, entries, mark, newest, full_ms)
            self._queues_flushed_at = time.monotonic()

    def remove(self, file: FileId, found: SegmentFile) -> None:
        """Delete an expired file, after its records and entries are on the device: recovery does not need it then."""
        self._check_owned()
        if file.kind is FileKind.LOG:
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
            else:  # this store keeps no index, and has files of one that it or a broker kept before
                self._fs.unlink(found.path)
                self._fs.sync_dir(os.path.dirname(found.path))

    def stop(self) -> None:
        """Wait for the threads that dispatch or flush; afterwards neither is possible."""
        with self._flushing_queues, self._dispatching:
            self._stopped = True
            self.flusher.stop()

    def _check(self) -> None:
        if self._stopped:
            raise StoreClosedError("this store was closed", path=self._failure.path, fix="Open it")
        self._failure.check()


def join(*threads: threading.Thread) -> None:
    """Wait for the end of stopping threads, except the calling thread and threads that never began."""
    # A join that a Ctrl-C interrupts takes its thread for ended (bpo-45274). No part relies on it: each has a lock that
    # its work holds, and finds there that it was stopped.
    for thread in threads:
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join()


class StoreServices(Protocol):
    """Background work of one store, by threads or by the calls that put."""

    is_threaded: bool  # True if threads run

    def start(self) -> None:
        """Start the threads, if there are any."""

    def after_put(self) -> None:
        """Run or wake what is due after a put; errors are noted, and the next call raises them."""

    def stop(self) -> None:
        """Stop the threads, and return when no service runs."""


class OnCall:
    """Services without threads, for ``Services.ON_CALL``."""

    is_threaded = False

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick

    def start(self) -> None:
        """Return at once: there are no threads."""

    def after_put(self) -> None:
        """Run what is due. The put succeeded, so an error is noted only, and the next call raises it."""
        with suppress(SegmentLogError, OSError):
            self._tick()

    def stop(self) -> None:
        """Return at once: there are no threads."""


class BackgroundServices:
    """Services with threads, which run from `start` until `stop`."""

    is_threaded = True

    def __init__(
        self,
        dispatch: Callable[[], None],
        periodic: Mapping[str, Callable[[], None]],
        interval_s: float,
        failure: Failure,
    ) -> None:
        self._failure = failure
        self._stopping = False
        # Written in C: a Ctrl-C within Event.set can leave its lock held, and each put would wait for it for ever.
        self._work: queue.SimpleQueue[None] = queue.SimpleQueue()
        threads = range(1 + len(periodic))
        self._pauses: list[queue.SimpleQueue[None]] = [queue.SimpleQueue() for _ in threads]
        """Per thread: an item ends its pause early."""
        self._threads = [
            threading.Thread(target=self._dispatching, args=(dispatch,), name="segmentlog-dispatch", daemon=True),
            *(
                threading.Thread(
                    target=self._at_intervals, args=(which, each, interval_s), name=f"segmentlog-{name}", daemon=True
                )
                for which, (name, each) in enumerate(periodic.items(), 1)
            ),
        ]

    def start(self) -> None:
        """Start the threads; after an error `stop` ends those that were started."""
        for thread in self._threads:
            thread.start()

    def after_put(self) -> None:
        """Wake the dispatching thread."""
        if self._work.empty():  # the thread takes the item out before it looks for records
            self._work.put(None)

    def stop(self) -> None:
        """Stop the threads, and return when no service runs. May be repeated, by another thread, too."""
        self._halt()
        join(*self._threads)

    def _halt(self) -> None:
        self._stopping = True
        for each in (self._work, *self._pauses):
            each.put(None)

    def _pause(self, which: int, seconds: float) -> bool:
        """Wait at most some seconds; return whether the thread continues."""
        if not self._stopping:
            with suppress(queue.Empty):
                self._pauses[which].get(timeout=seconds)
        return not self._stopping

    def _await_work(self) -> bool:
        """Wait for a put; return whether the thread continues."""
        self._work.get()
        return not self._stopping

    def _dispatching(self, dispatch: Callable[[], None]) -> None:
        while self._await_work():
            if self._attempt(dispatch):
                self._pause(0, _ROUND_S)
            else:
                self._pause(0, _RETRY_S)
                self._work.put(None)

    def _at_intervals(self, which: int, service: Callable[[], None], interval_s: float) -> None:
        while self._pause(which, interval_s):
            self._attempt(service)

    def _attempt(self, service: Callable[[], None]) -> bool:
        """Run a service once; return False if the disk is full."""
        try:
            service()
        except NoSpaceError as error:
            _log.warning("the disk is full, trying again: %s", error)
            return False
        except Exception as error:  # noqa: BLE001 - the next append raises it
            if not self._stopping and not isinstance(error.__cause__, KeyboardInterrupt):
                _log.error("the store accepts no append any more: %s", error, exc_info=error)
            self._failure.note(error)
            self._halt()
        return True
