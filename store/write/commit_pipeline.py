"""What threads of its own do for a batch: read ahead of it, and sync behind it.

::

    reads    [chunk 0][chunk 1][chunk 2]                   one is read while the one before is put
    puts              [chunk 0][chunk 1][chunk 2]
    syncs                      [ up to 0 ]  [ up to 2 ]    what was put goes to the device meanwhile
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class Ahead:
    """Threads for one batch; a context manager that waits for them.

    Parameters
    ----------
    is_threaded
        Without threads everything happens in the order of the calls, and nothing is synced before its time.
    """

    def __init__(self, *, is_threaded: bool) -> None:
        self._reading = ThreadPoolExecutor(1, "segmentlog-ahead") if is_threaded else None
        self._syncing = ThreadPoolExecutor(1, "segmentlog-behind") if is_threaded else None
        self._sync: Future[None] | None = None

    def items(self, items: Iterator[T]) -> Iterator[T]:
        """Give items of an iterator that is one ahead; what it raises is raised when its turn comes."""
        if self._reading is None:
            yield from items
            return
        coming: Future[T | None] = self._reading.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = self._reading.submit(next, items, None)
            yield item

    def sync(self, work: Callable[[], None]) -> None:
        """Sync, unless that is going on; whoever needs to know how it ended syncs once more."""
        if self._syncing is not None and (self._sync is None or self._sync.done()):
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
        for pool in (self._reading, self._syncing):
            if pool is not None:
                pool.shutdown(cancel_futures=True)
