"""Processes of a soak: each does one thing, again and again, until its standard input ends, then says what it counted.

::

    test ── Popen ──► writer       MessageStore: single messages, batches, staged batches, a ledger
                      reader, …    StoreReader: everything, what is new, somewhere in the middle; every row checked
                      retention    unlinks first files every 50 ms
                      cutter       zeros the end of a store in place, and writes it again
         ◄── "ready" … JSON ──┘

Run as a program: ``python -m support.soak_worker ROLE OPTIONS``. Anything unexpected ends a process with an error, or a
signal; `SoakProcess.end` says so.
"""

import faulthandler
import gc
import json
import logging
import os
import random
import select
import subprocess
import sys
import time
from collections import Counter, deque
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from segmentlog.store import (
    BatchId,
    CorruptError,
    DataLossError,
    Flush,
    MessageStore,
    OffsetOutOfRangeError,
    OnLoss,
    Outgoing,
    QueueKey,
    QueueRange,
    ScanSpec,
    StoreConfig,
    StoreReader,
)
from segmentlog.store.sink import Staging

from .retention import Retention
from .telling import COLUMNS, batch_of, check

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parent.parent
ENDS_SECONDS_MAX = 240

CONFIG = StoreConfig(
    segment_bytes=512 << 10,
    queue_segment_entries=1500,
    index_slots=500,
    index_entries=3000,
    flush=Flush.ASYNC,
    flush_interval_ms=50,
)
"""Files that are full several times a second."""

CUT_CONFIG = replace(CONFIG, segment_bytes=256 << 20, index=False)
CUT_RECORD_BYTES = 2000
"""More than any record is long."""

SINGLE, BATCHED, STAGED = "Singles", "Batches", "Staged"
QUEUES = 3
STAGED_ROWS = 40
"""Of each queue in each staged batch, from two tasks: readers see a multiple of it."""
_BATCH_ROWS = 150
_RANGE_ROWS = 4000
_ENTRY_BYTES = 20
_PLACED_MAX = 10_000

Report = dict[str, Any]


class SoakProcess:
    """One of the processes, as the test sees it."""

    program = "support.soak_worker"
    """Module that has the roles."""

    def __init__(self, role: str, **options: object) -> None:
        self.role = role
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.program, role, json.dumps(options)],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            self.end()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def end(self) -> Report:
        try:
            out, errors = self._process.communicate(timeout=ENDS_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, errors = self._process.communicate()
            raise AssertionError(f"the {self.role} hangs: {errors[-4000:]}") from None
        status = self._process.returncode
        assert status == 0, f"the {self.role} ended with {status}: {errors[-6000:]}"
        counted: Report = json.loads(out.splitlines()[-1])
        return counted

    def kill(self) -> None:
        """End it, whatever it does; nothing if it has ended."""
        self._process.kill()
        self._process.communicate()


# In a process


def main(role: str, options: Report) -> None:
    run({"writer": write, "reader": read, "retention": retain, "cutter": cut}, role, options)


def run(roles: "dict[str, Callable[..., Report]]", role: str, options: Report) -> None:
    faulthandler.enable()
    counted = roles[role](**options)
    sys.stdout.write(json.dumps(counted | resources()) + "\n")


def ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def goes_on(seconds: float = 0.0) -> bool:
    """Wait a while; False as soon as standard input has ended."""
    return not select.select([sys.stdin], [], [], seconds)[0]


def resources() -> Report:
    """Resources of the process: KiB of its own memory now and at most, descriptors, maps of files in stores."""
    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    status = {name: text.split()[0] for name, _, text in (line.partition(":") for line in lines) if text.strip()}
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").count("/commitlog/")
    return {"memory": int(status["RssAnon"]), "descriptors": len(os.listdir("/proc/self/fd")), "maps": maps}


class Writing:
    """Appends messages that tell what they are, in all three ways, to an open store."""

    def __init__(self, store: MessageStore, path: str) -> None:
        self._store = store
        self._path = path
        self._rng = random.Random(7)
        self.ends = Counter[QueueKey]()
        self.written = Counter[str]()
        self.placed: deque[tuple[QueueKey, int, int]] = deque(maxlen=_PLACED_MAX)
        self.batches = 0

    def once(self, singles: int, batches: int) -> None:
        for _ in range(singles):
            self._single()
        for _ in range(batches):
            self._batch()
        self._staged()

    def check_ends(self) -> None:
        self._store.wait_dispatched()
        assert {key: self._store.bounds(key).max_offset for key in self.ends} == self.ends

    def _single(self) -> None:
        key = QueueKey(SINGLE, self._rng.randrange(QUEUES))
        made = batch_of([(key, self.ends[key], 1)])
        body = made.column("body")[0].as_py()
        put = self._store.append(Outgoing(topic=key.topic, queue_id=key.queue_id, body=body))
        assert put.queue_offset == self.ends[key]
        self._count(key, 1, put.physical_offset)

    def _batch(self) -> None:
        keys = [QueueKey(BATCHED, queue_id) for queue_id in range(QUEUES)]
        put = self._store.append_batch(batch_of([(key, self.ends[key], _BATCH_ROWS) for key in keys]))
        for number, key in enumerate(keys):
            self._count(key, _BATCH_ROWS, int(put.physical_offsets[number * _BATCH_ROWS]))

    def _staged(self) -> None:
        keys = [QueueKey(STAGED, queue_id) for queue_id in range(QUEUES)]
        half, done = STAGED_ROWS // 2, []
        for task in range(2):
            with Staging.open(self._path, f"job{self.batches}", task, "a", CONFIG) as staging:
                staging.add(batch_of([(key, self.ends[key] + task * half, half) for key in keys]))
                done.append(staging.finish())
        committed = self._store.commit_batch(BatchId("soak", self.batches, contiguous=True), done)
        assert {(span.queue_id, span.first) for span in committed.queues} == {(k.queue_id, self.ends[k]) for k in keys}
        for key in keys:
            self._count(key, STAGED_ROWS, committed.start)
        self.batches += 1

    def go_on(self, rows_per_second: int) -> None:
        """Append until told to end, and no faster than told."""
        begun = time.monotonic()
        self.once(1, 1)
        self._store.wait_dispatched()
        ready()
        while goes_on(max(0.0, begun + self.written.total() / rows_per_second - time.monotonic())):
            self.once(10, 4)
        self.check_ends()

    def _count(self, key: QueueKey, rows: int, physical: int) -> None:
        self.placed.append((key, self.ends[key], physical))
        self.ends[key] += rows
        self.written[key.topic] += rows


def write(path: str, rows_per_second: int) -> Report:
    """Append messages that tell what they are, in all three ways, and no faster than told."""
    with MessageStore.open(path, CONFIG) as store:
        writing = Writing(store, path)
        writing.go_on(rows_per_second)
    return {"written": dict(writing.written), "batches": writing.batches}


class Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        logging.getLogger("segmentlog").addHandler(self)
        logging.getLogger("segmentlog").propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class Reading:
    """Work of one reader: rounds, each with ranges of all queues, some of them with losses allowed."""

    def __init__(self, path: str, seed: int, *, may_be_damaged: bool) -> None:
        self._path = path
        self._rng = random.Random(seed)
        self._warnings = Warnings()
        self._may_be_damaged = may_be_damaged
        self._bounds: dict[QueueKey, tuple[int, int]] = {}
        self._reader = StoreReader.open(path)
        self.rounds = self.rows = self.skipped = 0
        self.errors: Counter[str] = Counter()

    def round(self) -> None:
        self.rounds += 1
        if self.rounds % 7 == 0:
            self._reader = StoreReader.open(self._path)
        else:
            self._reader.refresh()
        on_loss = self._rng.choice(list(OnLoss))
        spec = ScanSpec(
            columns=COLUMNS, check_crc=True, on_loss=on_loss, batch_bytes=self._rng.choice([1 << 16, 8 << 20])
        )
        self._warnings.said.clear()
        before = self.rows
        try:
            wanted = self._ranges()
            self._scan(wanted, spec)
        except (DataLossError, OffsetOutOfRangeError) as error:
            self.errors[type(error).__name__] += 1
            return
        except CorruptError as error:
            if not self._may_be_damaged:
                raise
            self.errors[type(error).__name__] += 1
            return
        missing = sum(map(len, wanted)) - (self.rows - before)
        assert missing >= 0
        if missing:
            assert on_loss is OnLoss.SKIP, f"{missing} rows are missing, and nothing was raised"
            assert self._warnings.said, f"{missing} rows are missing, and nothing was said"
            self.skipped += missing

    def _ranges(self) -> list[QueueRange]:
        ranges = []
        staged = set()
        how = self._rng.randrange(4)
        for topic in self._reader.topics():
            for bounds in self._reader.queues(topic):
                first, last = bounds.min_offset, bounds.max_offset
                known = self._bounds.get(bounds.key, (0, 0))
                if not self._may_be_damaged:
                    assert known[0] <= first <= last, f"{bounds} was {known}"
                    assert known[1] <= last, f"{bounds} was {known}"
                self._bounds[bounds.key] = first, last
                # Retention may take all files of a queue that a slow reader has listed: then its end is not known.
                if topic == STAGED and (first < last or not first):
                    staged.add(last)
                if how == 0:
                    first = max(first, last - _RANGE_ROWS)
                elif how == 1:
                    last = min(last, first + _RANGE_ROWS)
                elif how == 2:
                    first, last = sorted(self._rng.randint(first, last) for _ in range(2))
                ranges.append(QueueRange(bounds.key, first, last))
        if not self._may_be_damaged:
            assert len(staged) <= 1, f"a batch was seen in part: {staged}"
            assert all(end % STAGED_ROWS == 0 for end in staged)
        return ranges

    def _scan(self, wanted: list[QueueRange], spec: ScanSpec) -> None:
        reached = {each.key: each.start - 1 for each in wanted}
        stops = {each.key: each.stop for each in wanted}
        for task in self._reader.plan(wanted, max_bytes=self._rng.choice([1 << 18, 16 << 20])):
            for batch in self._reader.scan(task, spec):
                batch.validate(full=True)
                check(batch)
                self.rows += batch.num_rows
                _in_order(batch, reached)
        for key, last in reached.items():
            assert last < stops[key]


def _in_order(batch: pa.RecordBatch, reached: dict[QueueKey, int]) -> None:
    places = pa.table({name: batch.column(name) for name in COLUMNS[:3]})
    groups = places.group_by(["topic", "queueId"], use_threads=False).aggregate([("queueOffset", "list")])
    for topic, queue_id, offsets in zip(*(groups.column(n).to_pylist() for n in groups.column_names), strict=True):
        found = [reached[QueueKey(topic, queue_id)], *offsets]
        assert all(a < b for a, b in pairwise(found)), (topic, queue_id)
        reached[QueueKey(topic, queue_id)] = offsets[-1]


def read(path: str, seed: int, rows_min: int = 0, *, may_be_damaged: bool = False, settle_s: float) -> Report:
    """Read until told to end, and at least so many rows; the resources after `settle_s` seconds are `settled`."""
    os.nice(5)  # several that never pause, beside one that is waited for
    reading = Reading(path, seed, may_be_damaged=may_be_damaged)
    ready()
    settled: Report = {}
    begun = time.monotonic()
    while goes_on() or reading.rows < rows_min:
        reading.round()
        if not settled and time.monotonic() - begun > settle_s:
            settled = resources()
    counted = {"rows": reading.rows, "rounds": reading.rounds, "errors": dict(reading.errors)}
    return counted | {"skipped": reading.skipped, "settled": settled}


def retain(path: str, keep: int, every_ms: int) -> Report:
    retention = Retention(path, keep)
    ready()
    ticks = 0
    while goes_on(every_ms / 1000):
        retention.tick()
        ticks += 1
    deleted = retention.deleted
    counted = {"segments": deleted.segments, "queue files": deleted.queue_files, "index files": deleted.index_files}
    return counted | {"ticks": ticks}


def cut(path: str, seed: int, seconds: float) -> Report:
    """Take back the end of the log and of its queues, a bit at a time and in place, as recovery does it once."""
    rng = random.Random(seed)
    with MessageStore.open(path, CUT_CONFIG):  # holds the lock: the store is live
        (log,) = (file for file in Path(path, "commitlog").iterdir() if any(file.read_bytes()[:8]))
        entries = [
            (int.from_bytes(data[at : at + 8], "big"), file, at)
            for file in sorted(Path(path, "consumequeue").glob("*/*/*"))
            for data in (file.read_bytes(),)
            for at in range(0, len(data), _ENTRY_BYTES)
            if any(data[at : at + _ENTRY_BYTES])
        ]
        entries.sort()
        ready()
        begun, count, cuts = time.monotonic(), len(entries), 0
        while goes_on(rng.choice([0.0, 0.001, 0.02])):
            left = max(0.2, 1 - (time.monotonic() - begun) / seconds)
            gone = [entries.pop() for _ in range(len(entries) - int(left * count))]
            if not gone:
                continue
            steps = [
                (log, gone[-1][0], gone[0][0] + CUT_RECORD_BYTES),
                *((f, at, at + _ENTRY_BYTES) for _, f, at in gone),
            ]
            if rng.random() < 0.5:
                steps.reverse()
            for file, first, last in steps:
                _overwrite(file, first, bytes(last - first))
            cuts += 1
    return {"cuts": cuts, "messages": count - len(entries)}


def _overwrite(file: Path, at: int, data: bytes) -> None:
    fd = os.open(file, os.O_WRONLY)
    try:
        os.pwrite(fd, data, at)
    finally:
        os.close(fd)


def write_once(path: Path, rows: int) -> None:
    """Make a store for a cutter: three queues of so many messages, in one segment."""
    with MessageStore.open(path, CUT_CONFIG) as store:
        keys = [QueueKey(BATCHED, queue_id) for queue_id in range(QUEUES)]
        for first in range(0, rows, _BATCH_ROWS):
            store.append_batch(batch_of([(key, first, _BATCH_ROWS) for key in keys]))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
