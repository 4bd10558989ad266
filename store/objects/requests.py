"""Threads of a process for requests to object stores: at most 8 requests at a time, of at most 16 MiB each.

::

    bytes wanted   ▒▒▒ ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒        ▒▒▒▒
    requests       [ 8 to 16 MiB ][ 8 to 16 MiB ]        [    ]     merged where a gap is at most 1 MiB
                      └───────────────┴────────── 8 threads ─► object store
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

IN_FLIGHT: Final = 8
REQUEST_BYTES: Final = 16 << 20
GAP_BYTES: Final = 1 << 20

_lock = threading.Lock()
_pool: tuple[int, ThreadPoolExecutor] | None = None


def submit(call: Callable[[], T]) -> "Future[T]":
    """Run a call on one of the threads."""
    global _pool  # noqa: PLW0603 - one pool per process, whatever it has open
    with _lock:
        if _pool is None or _pool[0] != os.getpid():  # threads do not survive a fork
            _pool = os.getpid(), ThreadPoolExecutor(IN_FLIGHT, "segmentlog-objects")
        return _pool[1].submit(call)


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
