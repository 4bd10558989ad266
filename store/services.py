"""The threads of a store: one dispatches when there is something, one flushes when it is time.

::

    dispatch   wait for work ──► dispatch ──► …            at once after a put, a hundred times a second at most
    flush      wait an interval ──► flush what is due ──► …

A full disk is waited out; any other failure ends the threads, and the store accepts nothing more. RocketMQ:
``ReputMessageService``, ``FlushRealTimeService``, ``FlushConsumeQueueService``, ``AllocateMappedFileService``.
"""

import logging
import threading
from collections.abc import Callable

from .errors import NoSpaceError
from .flusher import Failure

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
_ROUND_S = 0.01
"""Between two rounds of dispatch: a round costs much the same for one record as for a thousand."""


class BackgroundServices:
    """Runs the services of one store until they are stopped.

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
        self._stopping = threading.Event()
        self._work = threading.Event()
        self._threads = [
            threading.Thread(target=self._dispatching, args=(dispatch,), name="segmentlog-dispatch", daemon=True),
            threading.Thread(target=self._flushing, args=(flush, interval_s), name="segmentlog-flush", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Say that there is something to dispatch."""
        if not self._work.is_set():  # it is cleared before one looks at what there is
            self._work.set()

    def stop(self) -> None:
        """End the threads, and wait for them."""
        self._stopping.set()
        self._work.set()
        for thread in self._threads:
            thread.join()

    def _dispatching(self, dispatch: Callable[[], None]) -> None:
        while self._work.wait() and not self._stopping.is_set():
            self._work.clear()
            if self._attempt(dispatch):
                self._stopping.wait(_ROUND_S)
            else:
                self._stopping.wait(_RETRY_S)
                self._work.set()

    def _flushing(self, flush: Callable[[], None], interval_s: float) -> None:
        while not self._stopping.wait(interval_s):
            self._attempt(flush)

    def _attempt(self, service: Callable[[], None]) -> bool:
        """Run a service once; False if there is no room for what it does."""
        try:
            service()
        except NoSpaceError as error:
            _log.warning("waiting for room: %s", error)
            return False
        except Exception as error:  # noqa: BLE001 - whoever appends next hears of it
            if not self._stopping.is_set():
                _log.error("no append is accepted any more: %s", error, exc_info=error)
            self._failure.note(error)
            self._stopping.set()
        return True
