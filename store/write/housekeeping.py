"""What a store that is open does besides taking messages: dispatch, flush, make the next files.

::

    put ──► log ──► sync_log ──► dispatch ──► flush_queues ──► durable point, checkpoint, topics.json
                       ▲            ▲              ▲
                    group commit    │              └ after a GiB of log, or a minute
                    or a timer      └ after each put, of what may be seen

Called by the store's threads, or by whoever puts; each of it by one at a time. RocketMQ: ``FlushRealTimeService``,
``ReputMessageService``, ``FlushConsumeQueueService``.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from ..config import Flush, StoreConfig
from ..directory.topics import TopicTable
from ..dispatch.dispatcher import Dispatcher
from ..errors import StoreClosedError
from ..format.index_file import EMPTY_INDEX
from ..index.writer import IndexWriter
from ..log.appender import LogAppender
from ..log.segment_supply import SegmentSupply
from ..queues.writer import QueueWriter
from ..recovery.durability import Durability
from .failure import Failure
from .group_commit import Flusher

_PAGE: Final = 4096


class Upkeep:
    """The upkeep of one store that is open.

    Parameters
    ----------
    config
        What is done when.
    appender, supply, dispatcher, queues, index, durability, topics, failure
        The parts of the store; no index if there is none.
    end
        Physical offset up to which the log is on the device.
    is_hidden
        Tells whether readers cannot see yet what is being appended.
    own
        Raises if the store is not ours any more, and notes that as a failure.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        appender: LogAppender,
        supply: SegmentSupply,
        dispatcher: Dispatcher,
        queues: QueueWriter,
        index: IndexWriter | None,
        durability: Durability,
        topics: TopicTable,
        failure: Failure,
        end: int,
        is_hidden: Callable[[], bool],
        own: Callable[[], None],
    ) -> None:
        self.flusher = Flusher(self._sync_log, end, failure)
        """Knows up to where the log is on the device."""
        self.is_starved = False
        """Whether dispatch found no room."""
        self._config = config
        self._appender = appender
        self._supply = supply
        self._dispatcher = dispatcher
        self._queues = queues
        self._index = index
        self._durability = durability
        self._topics = topics
        self._failure = failure
        self._is_hidden = is_hidden
        self._own = own
        self._stopped = False
        self._flushing_queues = threading.Lock()  # to be had in this order
        self._dispatching = threading.Lock()
        self._syncing = threading.Lock()
        self._flushed_at = self._queues_flushed_at = time.monotonic()

    def dispatch(self, *, at_once: bool = False) -> None:
        """Make visible what may be seen: with SYNC what is on the device, or hidden by a batch that is in flight.

        Parameters
        ----------
        at_once
            Whether all of it is to be visible afterwards, however little it is.
        """
        with self._dispatching:
            self._check()
            waits = self._config.flush is Flush.SYNC and not self._is_hidden()
            self.is_starved = True
            with self._failure.fatal_unless_full():
                self._dispatcher.run(self.flusher.flushed if waits else self._appender.end, at_once=at_once)
            self.is_starved = False

    def keep(self) -> None:
        """Make sure that the store is still ours, flush what has its time, and make the next segment."""
        self._own()
        config, now = self._config, time.monotonic()
        if config.flush is Flush.ASYNC:
            waiting = self._appender.end - self.flusher.flushed
            elapsed = (now - self._flushed_at) * 1000
            due = waiting >= config.flush_least_pages * _PAGE and elapsed >= config.flush_interval_ms
            if waiting and (due or elapsed >= config.flush_thorough_interval_ms):
                self.flusher.wait(self._appender.end)
        behind = self._dispatcher.dispatched - self._durability.point.queues
        elapsed = (now - self._queues_flushed_at) * 1000
        due = behind >= config.queue_flush_log_bytes and elapsed >= config.queue_flush_interval_ms
        if behind and (due or elapsed >= config.queue_flush_thorough_interval_ms):
            self.flush_queues()
        else:
            self.write_slots()
        self._supply.prepare()

    def write_slots(self) -> None:
        """Let readers find the keys of what is dispatched."""
        if self._index is not None:
            with self._dispatching:
                self._check()
                with self._failure.fatal_unless_full():
                    self._index.write_slots()

    def flush_queues(self) -> None:
        """Put queues, index and checkpoint onto the device, and note up to where they go."""
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

    def stop(self) -> None:
        """Wait for those who dispatch or flush, and let nobody do it any more."""
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
            self._own()  # all of it was written before another one could have had the store
            self._flushed_at = time.monotonic()
            self._durability.note_log(end)
            return end
