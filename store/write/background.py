"""Background services of an open store: one thread dispatches after puts, others work at intervals.

::

    dispatch   wait for work ──► dispatch ──► …            at once after a put, a hundred times per second at most
    flush      wait an interval ──► flush what is due ──► …            no other service delays it
    retention  wait an interval ──► delete what is due ──► …           if the store has retention
    stop       stopping is set ──► the lock of each thread was free once ──► no service runs any more

    OnCall     tick ──► …                                  no threads: each put runs what is due

A full disk is waited out. Any other failure ends the threads, and the store accepts nothing more. RocketMQ:
``ReputMessageService``, ``FlushRealTimeService``, ``FlushConsumeQueueService``, ``AllocateMappedFileService``.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from ..errors import NoSpaceError, SegmentLogError
from .failure import Failure
from .workers import await_end

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
_ROUND_S = 0.01
"""Pause between two rounds of dispatch: a round costs much the same for one record as for a thousand."""


class StoreServices(Protocol):
    """Background work of one store, by threads or by the calls that put."""

    is_threaded: bool
    """True if threads run."""

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
        is_behind: Callable[[], bool],
    ) -> None:
        self._dispatch = dispatch
        self._is_behind = is_behind
        self._failure = failure
        self._stopping = False
        # Written in C: a Ctrl-C within Event.set can leave its lock held, and every thread would wait for it for ever.
        self._work: queue.SimpleQueue[None] = queue.SimpleQueue()
        threads = range(1 + len(periodic))
        self._pauses: list[queue.SimpleQueue[None]] = [queue.SimpleQueue() for _ in threads]
        """Per thread: an item ends its pause early."""
        self._running = [threading.Lock() for _ in threads]
        """Held by each thread while it runs services."""
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
        """Start the threads; after an interrupt `stop` ends those that were started."""
        for thread in self._threads:
            thread.start()

    def after_put(self) -> None:
        """Wake the dispatching thread; dispatch in the calling thread, too, if too many records wait for it."""
        if self._is_behind():
            with suppress(SegmentLogError, OSError):
                self._dispatch()
        else:
            self.wake()

    def wake(self) -> None:
        """Wake the dispatching thread."""
        if self._work.empty():  # the thread takes the item out before it looks for records
            self._work.put(None)

    def stop(self) -> None:
        """Stop the threads, and return when no service runs. May be repeated, by another thread, too."""
        self._halt()
        await_end(self._threads, self._running)

    def _halt(self) -> None:
        self._stopping = True
        for each in (self._work, *self._pauses):
            each.put(None)

    def _pause(self, which: int, seconds: float) -> bool:
        """Wait, at most so long; return whether the thread continues."""
        if not self._stopping:
            with suppress(queue.Empty):
                self._pauses[which].get(timeout=seconds)
        return not self._stopping

    def _await_work(self) -> bool:
        """Wait for a put; return whether the thread continues."""
        self._work.get()
        return not self._stopping

    def _dispatching(self, dispatch: Callable[[], None]) -> None:
        with self._running[0]:
            while self._await_work():
                if self._attempt(dispatch):
                    self._pause(0, _ROUND_S)
                else:
                    self._pause(0, _RETRY_S)
                    self._work.put(None)

    def _at_intervals(self, which: int, service: Callable[[], None], interval_s: float) -> None:
        with self._running[which]:
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
            if not self._stopping:
                _log.error("the store accepts no append any more: %s", error, exc_info=error)
            self._failure.note(error)
            self._halt()
        return True
