"""The threads of a store: one dispatches when there is something, one flushes when it is time.

::

    dispatch   wait for work ──► dispatch ──► …            at once after a put, a hundred times a second at most
    flush      wait an interval ──► flush what is due ──► …
    stop       stopping is set ──► each thread's lock is had once ──► no service runs any more

A full disk is waited out; any other failure ends the threads, and the store accepts nothing more. RocketMQ:
``ReputMessageService``, ``FlushRealTimeService``, ``FlushConsumeQueueService``, ``AllocateMappedFileService``.
"""

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from ..errors import NoSpaceError
from .failure import Failure

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
_ROUND_S = 0.01
"""Between two rounds of dispatch: a round costs much the same for one record as for a thousand."""


class BackgroundServices:
    """Runs the services of one store from `start` until `stop`.

    Parameters
    ----------
    dispatch
        Dispatches what there is.
    flush
        Flushes what is due.
    interval_s
        How often ``flush`` is called.
    failure
        Where a failure is noted.
    """

    def __init__(
        self, dispatch: Callable[[], None], flush: Callable[[], None], interval_s: float, failure: Failure
    ) -> None:
        self._failure = failure
        self._stopping = False
        # Written in C: a Ctrl-C within Event.set can leave its lock held, and everybody waits for that for ever.
        self._work: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._pauses: tuple[queue.SimpleQueue[None], queue.SimpleQueue[None]] = queue.SimpleQueue(), queue.SimpleQueue()
        """Of each thread: what ends its pause before its time."""
        self._running = [threading.Lock(), threading.Lock()]
        """Held by each thread as long as it runs services."""
        self._threads = [
            threading.Thread(target=self._dispatching, args=(dispatch,), name="segmentlog-dispatch", daemon=True),
            threading.Thread(target=self._flushing, args=(flush, interval_s), name="segmentlog-flush", daemon=True),
        ]

    def start(self) -> None:
        """Start the threads; whatever interrupts that, `stop` ends those that were started."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Say that there is something to dispatch."""
        if self._work.empty():  # it is taken out before one looks at what there is
            self._work.put(None)

    def stop(self) -> None:
        """End the threads, and wait until no service runs; may be repeated, by another thread, too."""
        self._halt()
        for running in self._running:
            # Thread.join takes a thread for ended if a Ctrl-C interrupts it (bpo-45274); one that is only about to run
            # finds that it is to stop.
            with running:
                pass
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    def _halt(self) -> None:
        self._stopping = True
        for each in (self._work, *self._pauses):
            each.put(None)

    def _pause(self, which: int, seconds: float) -> bool:
        """Let a thread wait; tell whether it goes on."""
        if not self._stopping:
            with suppress(queue.Empty):
                self._pauses[which].get(timeout=seconds)
        return not self._stopping

    def _await_work(self) -> bool:
        """Wait until there is something to dispatch; tell whether the thread goes on."""
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

    def _flushing(self, flush: Callable[[], None], interval_s: float) -> None:
        with self._running[1]:
            while self._pause(1, interval_s):
                self._attempt(flush)

    def _attempt(self, service: Callable[[], None]) -> bool:
        """Run a service once; False if there is no room for what it does."""
        try:
            service()
        except NoSpaceError as error:
            _log.warning("waiting for room: %s", error)
            return False
        except Exception as error:  # noqa: BLE001 - whoever appends next hears of it
            if not self._stopping:
                _log.error("no append is accepted any more: %s", error, exc_info=error)
            self._failure.note(error)
            self._halt()
        return True
