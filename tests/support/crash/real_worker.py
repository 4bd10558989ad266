"""A process that writes a store on the real file system, to be traced.

::

    thread 0, 1, 2   append, append_batch, flush, …  ──► MessageStore ──► LocalWritableFileSystem, lock, service threads
    thread 3         Staging, commit_batch, …                │
                                                             └ acknowledged ──► one line in the file ``marks``
    all of them end; close; open; once more                                     [end of the log, durable]

Run as a program: ``python -m support.crash.real_worker ERRAND``. A mark has the promise of a returned call. It
names the log up to an offset, on the device or in the page cache. The tracer sees it in its place between the calls of
the store. At the end, the requests are in the file ``issued``.
"""

import json
import os
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from segmentlog.store import BatchId, MessageStore, Outgoing
from segmentlog.store.config import Flush, Services, StoreConfig
from segmentlog.store.files import writable_fs
from segmentlog.store.log.appender import LogAppender
from segmentlog.store.sink import Staging

from ..batches import batch_of
from .batches import IssuedBatch
from .driver import CONFIG, LATE, START_MS, Issued, make_message

_REAL = replace(CONFIG, services=Services.BACKGROUND)

CONFIGS: dict[str, StoreConfig] = {
    "sync": _REAL,
    "async": replace(_REAL, flush=Flush.ASYNC, flush_interval_ms=20, flush_least_pages=1),
    "sync, late queues": replace(LATE, services=Services.BACKGROUND, segment_bytes=8 << 10),
    "async, late log": replace(
        _REAL, flush=Flush.ASYNC, flush_interval_ms=200, flush_least_pages=64, queue_flush_log_bytes=256 << 10
    ),
}
"""Stores: flushed often, and segments smaller than what is flushed at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Errand:
    folder: str  # with ``disk``, in which the store will be; ``marks`` and ``issued`` are put beside it
    config: str  # of `CONFIGS`
    seed: int
    # threads, calls, rounds: how many threads append how often before the store is closed and opened, and how often
    # that is done
    threads: int = 3
    calls: int = 12
    rounds: int = 3
    bug: str = ""  # of `BUGS`; none if empty


Asked = tuple[list[Issued], list[IssuedBatch]]
"""Requests to the store: messages, and batches that were staged and committed."""


class Worker:
    def __init__(self, errand: Errand) -> None:
        self._errand = errand
        self._config = CONFIGS[errand.config]
        self._path = os.path.join(errand.folder, "disk", "store")
        self._marks = os.open(os.path.join(errand.folder, "marks"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._serial = 0
        self._began = time.monotonic()
        self._failed: list[BaseException] = []
        self._store: MessageStore
        self.asked: Asked = ([], [])

    def run(self) -> Asked:
        errand = self._errand
        for turn in range(errand.rounds):
            self._store = MessageStore.open(self._path, self._config, clock=self._now)
            self._mark(self._store.end_offset, durable=True)
            works: list[Callable[[random.Random], None]] = [self._append] * errand.threads
            works.append(lambda rng, turn=turn: self._commit(rng, turn))
            threads = [
                threading.Thread(target=self._within, args=(work, random.Random(f"{errand.seed} {turn} {number}")))
                for number, work in enumerate(works)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if self._failed:
                raise self._failed[0]
            end = self._store.end_offset
            self._store.close()
            self._mark(end, durable=True)
        return self.asked

    def _now(self) -> int:
        return START_MS + int((time.monotonic() - self._began) * 1000)

    def _mark(self, end: int, *, durable: bool) -> None:
        os.write(self._marks, json.dumps([end, durable]).encode() + b"\n")

    def _within(self, work: Callable[[random.Random], None], rng: random.Random) -> None:
        try:
            work(rng)
        except BaseException as error:  # noqa: BLE001 - raised again where the threads are joined
            self._failed.append(error)

    def _messages(self, rng: random.Random, count: int) -> tuple[int, list[Outgoing]]:
        with self._lock:
            first = self._serial
            self._serial += count
        return first, [make_message(rng, uniq_key=f"{serial:08X}") for serial in range(first, first + count)]

    def _append(self, rng: random.Random) -> None:
        is_sync = self._config.flush is Flush.SYNC
        for _ in range(self._errand.calls):
            way = rng.random()
            if way < 0.6:
                first, (message,) = self._messages(rng, 1)
                placed = self._store.append(message)
                end = placed.physical_offset + placed.size
                self._mark(end, durable=is_sync)
                issued = [Issued(first, message, placed.physical_offset, placed.size, placed.queue_offset)]
            elif way < 0.9:
                first, messages = self._messages(rng, rng.choice([1, 2, 7, 20]))
                rows = self._store.append_batch(batch_of(messages))
                self._mark(int(rows.physical_offsets[-1] + rows.sizes[-1]), durable=is_sync)
                placed_at = zip(rows.physical_offsets, rows.sizes, rows.queue_offsets, strict=True)
                issued = [
                    Issued(first + row, messages[row], *(int(each) for each in where))
                    for row, where in enumerate(placed_at)
                ]
            else:
                end = self._store.end_offset
                self._store.flush()
                self._mark(end, durable=True)
                continue
            with self._lock:
                self.asked[0].extend(issued)
            if rng.random() < 0.2:
                time.sleep(rng.random() * 0.02)

    def _commit(self, rng: random.Random, turn: int) -> None:
        for number in range(2):
            tasks = tuple(tuple(self._messages(rng, rng.choice([0, 3, 15]))[1]) for _ in range(rng.choice([1, 2])))
            batch_id = BatchId("query", turn * 2 + number, contiguous=True)
            staged = []
            for task, messages in enumerate(tasks):
                with Staging.open(self._path, f"job{turn}", task, f"a{number}", self._config) as staging:
                    if messages:
                        staging.add(batch_of(messages))
                    staged.append(staging.finish())
            committed = self._store.commit_batch(batch_id, staged, topics={"TopicA": 4})
            self._mark(committed.stop, durable=True)
            self.asked[1].append(IssuedBatch(batch_id, tasks))


# Bugs that the checker has to see: of threads, and of the real file system; `test_planted_bugs.py` has the others


def _ledger_is_not_synced() -> None:
    real = writable_fs._LocalFile.sync
    writable_fs._LocalFile.sync = lambda file: (  # type: ignore[method-assign]
        None if "/.segmentlog/batch" in file.path else real(file)
    )


def _sync_is_acknowledged_while_it_goes_on() -> None:
    real = writable_fs._LocalFile.sync

    def sync(file: writable_fs._LocalFile) -> None:
        if "/commitlog/" in file.path:
            copy = os.dup(file._fd)
            threading.Thread(target=lambda: (os.fdatasync(copy), os.close(copy))).start()
        else:
            real(file)

    writable_fs._LocalFile.sync = sync  # type: ignore[method-assign]


def _what_came_during_the_sync_counts_as_synced() -> None:
    real = LogAppender.sync

    def sync(self: LogAppender) -> int:
        real(self)
        return self.end

    LogAppender.sync = sync  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    "ledger is not synced": _ledger_is_not_synced,
    "what came during the sync counts as synced": _what_came_during_the_sync_counts_as_synced,
    "sync is acknowledged while it goes on": _sync_is_acknowledged_while_it_goes_on,
}


def main(text: str) -> None:
    errand = Errand(**json.loads(text))
    if errand.bug:
        BUGS[errand.bug]()
    asked = Worker(errand).run()
    Path(errand.folder, "issued").write_bytes(pickle.dumps(asked))


if __name__ == "__main__":
    main(sys.argv[1])
