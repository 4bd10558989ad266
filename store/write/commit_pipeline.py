"""Commit pipeline: one thread prefetches the next staged chunk while another syncs what was appended.

::

    prefetch  [chunk 0][chunk 1][chunk 2]                   read while the chunk before is put
    put                [chunk 0][chunk 1][chunk 2]
    sync                        [ up to 0 ]  [ up to 2 ]    while the next chunk is put
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class CommitPipeline:
    """Threads of one batch commit; a context manager that waits for them. For one calling thread.

    Parameters
    ----------
    is_threaded
        False runs everything in the order of the calls, and syncs nothing early.
    """

    def __init__(self, *, is_threaded: bool) -> None:
        self._prefetching = ThreadPoolExecutor(1, "segmentlog-prefetch") if is_threaded else None
        self._syncing = ThreadPoolExecutor(1, "segmentlog-sync") if is_threaded else None
        self._sync: Future[None] | None = None

    def prefetched(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items of an iterator, which is kept one item ahead; its errors are raised in their order."""
        if self._prefetching is None:
            yield from items
            return
        coming: Future[T | None] = self._prefetching.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = self._prefetching.submit(next, items, None)
            yield item

    def sync(self, work: Callable[[], None]) -> None:
        """Start a sync unless one is running. Its errors are not reported here: the caller syncs again at the end."""
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
        for pool in (self._prefetching, self._syncing):
            if pool is not None:
                pool.shutdown(cancel_futures=True)
