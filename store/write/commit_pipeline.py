"""Commit pipeline: threads that read, write and sync the chunks of a batch at the same time.

::

    prefetch  [chunk 0][chunk 1][chunk 2][chunk 3]               one chunk ahead
    aside              [0][   1   ][2][3]                        releases what was read, and may wait for the device
    place              [0]      [1]      [2]      [3]            calling thread, in the order of the batch
    write              [chunk 0][chunk 2]                        each at its place, in any order
                                [chunk 1][chunk 3]
    append                      [0]      [1]      [2]      [3]   calling thread, in the order of the batch
    sync                        [ up to 0 ]  [ up to 2 ]
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Final, Self, TypeVar

from .workers import Job, Workers

T = TypeVar("T")
R = TypeVar("R")

_ASIDE_MAX: Final = 2  # calls that wait: space which is released late costs new pages elsewhere
_WRITERS_MAX: Final = 4  # each has a chunk of some megabytes in memory, and one waits for its turn to be appended


class CommitPipeline:
    """Threads of one batch commit; a context manager that waits for them. For one calling thread.

    Parameters
    ----------
    is_threaded
        False runs everything in the order of the calls, and syncs nothing early.
    """

    def __init__(self, *, is_threaded: bool) -> None:
        self._prefetching = Workers(1, "segmentlog-prefetch") if is_threaded else None
        writers = min(os.cpu_count() or 1, _WRITERS_MAX)
        self._writing = Workers(writers, "segmentlog-put") if is_threaded else None
        self._ahead_max = writers
        self._syncing = Workers(1, "segmentlog-sync") if is_threaded else None
        self._sync: Job[None] | None = None
        self._aside = Workers(1, "segmentlog-aside") if is_threaded else None
        self._running_aside: deque[Job[None]] = deque()

    def prefetched(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items of an iterator, which is kept one item ahead; its errors are raised in their order."""
        if self._prefetching is None:
            yield from items
            return
        coming: Job[T | None] = self._prefetching.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = self._prefetching.submit(next, items, None)
            yield item

    def run_aside(self, work: Callable[[], None]) -> None:
        """Make a call on a thread of its own, in the order of the calls; wait if many are pending. For one thread.

        An error of an earlier call is raised here. The last calls are dropped at the end if they have not begun.
        """
        if self._aside is None:
            work()
            return
        self._running_aside.append(self._aside.submit(work))
        if len(self._running_aside) > _ASIDE_MAX:
            self._running_aside.popleft().result()

    def written(self, items: Iterable[T], write: Callable[[T], R]) -> Iterator[tuple[T, R]]:
        """Call ``write`` for items on several threads, and yield each item with its result in the order of the items.

        Items are taken in the calling thread, a few of them ahead. The first error of an item is raised in its turn.
        """
        if self._writing is None:
            for item in items:
                yield item, write(item)
            return
        waiting: deque[tuple[T, Job[R]]] = deque()
        for item in items:
            waiting.append((item, self._writing.submit(write, item)))
            if len(waiting) > self._ahead_max:
                first, result = waiting.popleft()
                yield first, result.result()
        while waiting:
            first, result = waiting.popleft()
            yield first, result.result()

    def sync(self, work: Callable[[], None]) -> None:
        """Start a sync unless one is running. Its errors are not reported here: the caller syncs again at the end."""
        if self._syncing is not None and (self._sync is None or self._sync.has_ended):
            self._sync = self._syncing.submit(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._shut_down()
        except BaseException:  # a Ctrl-C
            self._shut_down()
            raise

    def _shut_down(self) -> None:
        for workers in (self._prefetching, self._aside, self._writing, self._syncing):
            if workers is not None:
                workers.stop()
