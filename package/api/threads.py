"""Tasks read by several threads, with their batches in the order of the tasks.

::

    threads   task 0 ─► [b b b]   task 1 ─► [b b]   task 2 ─► [b b b b]  waits: no room     task 3  waits: no permit
                           │                 │                                                      │
    caller  ◄──────────────┴─ then ──────────┴─ then task 2 …             a task consumed ──────────┘ frees a permit

At most ``threads + 1`` tasks are held, each with at most `_BATCHES_A_TASK` batches.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from queue import SimpleQueue
from typing import Final

import pyarrow as pa

from segmentlog.store import ScanSpec, ScanTask, StoreReader

_BATCHES_A_TASK: Final = 4


def read_in_order(
    open_reader: Callable[[], StoreReader], tasks: Sequence[ScanTask], spec: ScanSpec, threads: int
) -> Generator[pa.RecordBatch, None, None]:
    """Scan tasks with some threads, each with a reader of its own; yield their batches in the order of the tasks."""
    # With one thread the caller's own reads. An error is raised after the batches of earlier tasks.
    if threads == 1 or len(tasks) < 2:
        reader = open_reader()
        for task in tasks:
            yield from reader.scan(task, spec)
        return
    pool = _Pool(open_reader, tasks, spec, min(threads, len(tasks)))
    try:
        yield from pool.batches()
    finally:
        pool.stop()


class _Channel:
    """Batches of one task, on their way from a thread to the caller."""

    def __init__(self) -> None:
        self.items: SimpleQueue[pa.RecordBatch | BaseException | None] = SimpleQueue()  # None at the end of the task
        self.room = threading.Semaphore(_BATCHES_A_TASK)


class _Pool:
    """Threads at work. `batches` is called once, then `stop`."""

    def __init__(
        self, open_reader: Callable[[], StoreReader], tasks: Sequence[ScanTask], spec: ScanSpec, threads: int
    ) -> None:
        self._open_reader = open_reader
        self._tasks = tasks
        self._spec = spec
        self._channels = [_Channel() for _ in tasks]
        self._permits = threading.Semaphore(threads + 1)
        self._lock = threading.Lock()
        self._next = iter(range(len(tasks)))
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"segmentlog-scan-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of all tasks, in order."""
        for channel in self._channels:
            while (item := channel.items.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                channel.room.release()
                yield item
            self._permits.release()

    def stop(self) -> None:
        """End all threads, wherever they are."""
        self._stopped.set()
        self._permits.release(len(self._threads))
        for channel in self._channels:
            channel.room.release(1)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        reader: StoreReader | None = None
        while True:
            self._permits.acquire()
            with self._lock:
                number = next(self._next, None)
            if number is None or self._stopped.is_set():
                return
            channel = self._channels[number]
            try:
                reader = reader or self._open_reader()
                for batch in reader.scan(self._tasks[number], self._spec):
                    channel.room.acquire()
                    if self._stopped.is_set():
                        return
                    channel.items.put(batch)
            except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
                channel.items.put(error)
                return
            channel.items.put(None)
