"""Threads of a process for requests to object stores: at most 8 requests at a time, of at most 16 MiB each.

::

    bytes wanted   ▒▒▒ ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒        ▒▒▒▒
    requests       [ 8 to 16 MiB ][ 8 to 16 MiB ]        [    ]     merged where a gap is at most 128 KiB
                      └───────────────┴────────── 8 threads ─► object store
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

IN_FLIGHT: Final = 8
REQUEST_BYTES: Final = 16 << 20
GAP_BYTES: Final = 128 << 10
"""Bytes that take less time than a request: with 8 in flight and 30 ms each, 3.75 ms, in which 90 MB/s bring 340 KB."""
_IDLE_S: Final = 0.1


class _Threads:
    """Threads that end 0.1 s after the last request, so that none of them keeps the process from its end."""

    # The standard library's pool sends all that is queued before the process may end. Threads that are daemons can be
    # within the library when the interpreter is gone. A scan asks for a window when it has decoded one: a thread made
    # for each would allocate in another arena of malloc, whose freed memory goes back to the kernel.

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Condition()
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = self._idle = 0

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        with self._lock:
            self._queue.append((future, call))
            if self._idle >= len(self._queue):
                self._lock.notify()
            elif self._running < IN_FLIGHT:
                threading.Thread(target=self._work, name="segmentlog-objects").start()
                self._running += 1
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._idle += 1
                    self._lock.wait(_IDLE_S)
                    self._idle -= 1
                    if not self._queue:
                        self._running -= 1
                        return
                future, call = self._queue.popleft()
            if not threading.main_thread().is_alive():
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised by `result`
                future.set_exception(error)
            del future, call  # the answer: 16 MiB


_threads: "_Threads | None" = None


def submit(call: Callable[[], T]) -> "Future[T]":
    """Run a call on one of the threads."""
    global _threads  # noqa: PLW0603 - the process has one set of threads, whatever it has open
    if _threads is None or _threads.pid != os.getpid():  # threads do not survive a fork
        _threads = _Threads()
    return _threads.submit(call)


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run calls at the same time and return their results; the first error after all have ended."""
    if len(calls) == 1:
        return [calls[0]()]
    futures = [submit(call) for call in calls]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def merged(ranges: Iterable[tuple[int, int]], gap: int = GAP_BYTES) -> Iterator[tuple[int, int]]:
    """Merge ranges that overlap, or between which at most ``gap`` bytes are; ascending."""
    start = stop = -1
    for each_start, each_stop in sorted(each for each in ranges if each[0] < each[1]):
        if start >= 0 and each_start <= stop + gap:
            stop = max(stop, each_stop)
            continue
        if start >= 0:
            yield start, stop
        start, stop = each_start, each_stop
    if start >= 0:
        yield start, stop


def divided(start: int, stop: int, grain: int = 1) -> Iterator[tuple[int, int]]:
    """Divide a range into equal requests of at most `REQUEST_BYTES`, at multiples of ``grain``."""
    count = -(-(stop - start) // REQUEST_BYTES)
    step = -(-(stop - start) // max(count, 1))
    step += -step % grain
    for first in range(start, stop, step or 1):
        yield first, min(first + step, stop)
