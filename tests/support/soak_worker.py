"""Processes of a soak: each does one thing, again and again, until its standard input ends, then says what it counted.

::

    test ── Popen ──► writer       MessageStore: single messages, batches, staged batches of a sink; its retention
                                   deletes the oldest segments every 50 ms
                      reader, …    Snapshot: everything, what is new, somewhere in the middle, and often too late
         ◄── "ready" … JSON ──┘

A message may be lost only if its segment was deleted. An error or a warning names the deletion, and the first offset of
its queue says so afterwards.

Run as a program: ``python -m support.soak_worker ROLE OPTIONS``. Anything unexpected ends
a process with an error, or a signal; `SoakProcess.end` says so.
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
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from segmentlog.store import (
    BatchId,
    DataLossError,
    Flush,
    MessageStore,
    OffsetOutOfRangeError,
    OnLoss,
    Outgoing,
    QueueKey,
    QueueRange,
    RetentionSettings,
    ScanSpec,
    SegmentLogError,
    Snapshot,
    StoreConfig,
)
from segmentlog.store.directory.retention_history import deletions
from segmentlog.store.files.fs import LocalFileSystem, Space
from segmentlog.store.retention.state import FileKind
from segmentlog.store.sink import Staging
from segmentlog.store.write import retention_service

from .telling import COLUMNS, batch_of, check

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

SEGMENTS_KEPT = 6
EVERY_MS = 50
SETTINGS = RetentionSettings(
    log_bytes_max=SEGMENTS_KEPT * CONFIG.segment_bytes,
    start_ms=0,
    interval_ms=EVERY_MS,
    log_pause_ms=0,
    queue_pause_ms=0,
)
NOTE = "; retention deleted commitlog/"
_LATE_SECONDS = 0.7


SINGLE, BATCHED, STAGED = "Singles", "Batches", "Staged"
QUEUES = 3
STAGED_ROWS = 40
"""Of each queue in each staged batch, from two tasks: readers see a multiple of it."""
_BATCH_ROWS = 150
_RANGE_ROWS = 4000
_PLACED_MAX = 10_000

Counted = dict[str, Any]


class SoakProcess:
    def __init__(self, role: str, **options: object) -> None:
        self.role = role
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.soak_worker", role, json.dumps(options)],
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

    def end(self) -> Counted:
        try:
            out, errors = self._process.communicate(timeout=ENDS_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, errors = self._process.communicate()
            raise AssertionError(f"the {self.role} hangs: {errors[-4000:]}") from None
        status = self._process.returncode
        assert status == 0, f"the {self.role} ended with {status}: {errors[-6000:]}"
        counted: Counted = json.loads(out.splitlines()[-1])
        return counted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()


# In a process


def main(role: str, options: Counted) -> None:
    faulthandler.enable()
    counted = {"writer": write, "reader": read}[role](**options)
    sys.stdout.write(json.dumps(counted | resources()) + "\n")


def ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def goes_on(seconds: float = 0.0) -> bool:
    """Wait a while; False as soon as standard input has ended."""
    return not select.select([sys.stdin], [], [], seconds)[0]


def resources() -> Counted:
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


def write(path: str, rows_per_second: int) -> Counted:
    """Append to a store that deletes its oldest segments; return what is left of it in ``kept``.

    ``kept``: by queue, the first offset that has to be there, and its end; calls that a segment divides are left out.
    """
    retention_service.space_of = lambda _: Space(100, 90, 90)  # type: ignore[assignment] # not the real disk
    with MessageStore.open(path, CONFIG, retention=SETTINGS) as store:
        writing = Writing(store, path)
        writing.go_on(rows_per_second)
        assert store.retention is not None
        counts = store.retention.counts
    start = log_start(path)
    kept: dict[str, tuple[int, int]] = {f"{key.topic}/{key.queue_id}": (end, end) for key, end in writing.ends.items()}
    for key, first, physical in writing.placed:
        name = f"{key.topic}/{key.queue_id}"
        if physical >= start:
            kept[name] = min(kept[name][0], first), kept[name][1]
    assert min(physical for _, _, physical in writing.placed) < start, "the calls that are known begin too late"
    deleted = {kind.value: counts.files[kind] for kind in FileKind}
    return {"written": dict(writing.written), "kept": kept, "deleted": deleted, "failures": counts.failures}


def log_start(path: str | Path) -> int:
    return min(int(name) for name in os.listdir(Path(path, "commitlog")))


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

    def __init__(self, path: str, seed: int) -> None:
        self._path = path
        self._rng = random.Random(seed)
        self._warnings = Warnings()
        self._bounds: dict[QueueKey, tuple[int, int]] = {}
        self._snapshot = Snapshot.open(path)
        self.rounds = self.rows = self.skipped = 0
        self.errors: Counter[str] = Counter()

    def round(self) -> None:
        self.rounds += 1
        if self.rounds % 7 == 0:
            self._snapshot = Snapshot.open(self._path)
        else:
            self._snapshot = self._snapshot.newer()
        on_loss = self._rng.choice(list(OnLoss))
        spec = ScanSpec(
            columns=COLUMNS, check_crc=True, on_loss=on_loss, batch_bytes=self._rng.choice([1 << 16, 8 << 20])
        )
        self._warnings.said.clear()
        wanted: list[QueueRange] = []
        late: SegmentLogError | None = None
        try:
            wanted = self._ranges()
            found = self._scan(wanted, spec)
        except (DataLossError, OffsetOutOfRangeError) as error:
            late = error
        if late is not None:
            self.errors[type(late).__name__] += 1
            self._look_at_late(late, on_loss, wanted)
            return
        missed = _missed(self._path, wanted, found)
        if missed:
            assert on_loss is OnLoss.SKIP, f"{missed} messages are missing, and nothing was raised"
            said = self._warnings.said
            assert any(NOTE in text for text in said), f"{missed} messages are missing: {said}"
            self.skipped += missed

    def _ranges(self) -> list[QueueRange]:
        ranges = []
        staged = set()
        how = self._rng.randrange(4)
        for topic in self._snapshot.topics():
            for bounds in self._snapshot.queues(topic):
                first, last = bounds.min_offset, bounds.max_offset
                known = self._bounds.get(bounds.key, (0, 0))
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
        assert len(staged) <= 1, f"a batch was seen in part: {staged}"
        assert all(end % STAGED_ROWS == 0 for end in staged)
        return ranges

    def _scan(self, wanted: list[QueueRange], spec: ScanSpec) -> dict[QueueKey, list[np.ndarray]]:
        """Scan ranges, sometimes late; return the offsets that were found."""
        found: dict[QueueKey, list[np.ndarray]] = {each.key: [] for each in wanted}
        tasks = self._snapshot.plan(wanted, max_bytes=self._rng.choice([1 << 18, 16 << 20]))
        time.sleep(self._rng.choice([0.0, 0.0, 0.0, _LATE_SECONDS]))
        for task in tasks:
            for batch in self._snapshot.scan(task, spec):
                batch.validate(full=True)
                check(batch)
                self.rows += batch.num_rows
                _note(batch, found)
        return found

    def _look_at_late(self, late: SegmentLogError, on_loss: OnLoss, wanted: list[QueueRange]) -> None:
        """A reader that is too late is told of the deletion, and messages that it wanted are gone."""
        if isinstance(late, DataLossError):
            assert on_loss is OnLoss.FAIL, late
            assert NOTE in str(late), late
        now = Snapshot.open(self._path)
        assert any(now.bounds(each.key).min_offset > each.start for each in wanted), late


def _note(batch: pa.RecordBatch, found: dict[QueueKey, list[np.ndarray]]) -> None:
    topics, ids, offsets = (batch.column(name) for name in COLUMNS[:3])
    coded = topics.cast(pa.string()).dictionary_encode()
    numbers, queue_ids, places = coded.indices.to_numpy(), ids.to_numpy(), offsets.to_numpy()
    for number, topic in enumerate(coded.dictionary.to_pylist()):
        for queue_id in np.unique(queue_ids[numbers == number]).tolist():
            chosen = (numbers == number) & (queue_ids == queue_id)
            found[QueueKey(topic, queue_id)].append(places[chosen])


def _missed(path: str, wanted: list[QueueRange], found: dict[QueueKey, list[np.ndarray]]) -> int:
    """Count the messages that were not found; each has to be before the first offset that its queue has now."""
    now, missed = Snapshot.open(path), 0
    for each in wanted:
        offsets = np.concatenate([np.empty(0, np.int64), *found[each.key]])
        assert (np.diff(offsets) > 0).all(), f"{each.key} is not in order"
        assert not offsets.size or (each.start <= offsets[0] and offsets[-1] < each.stop), f"{each} has others"
        absent = np.setdiff1d(np.arange(each.start, each.stop), offsets, assume_unique=True)
        if absent.size:
            assert absent[-1] < now.bounds(each.key).min_offset, f"{each.key} lost offset {absent[-1]}, which is there"
            missed += absent.size
    return missed


def read(path: str, seed: int, rows_min: int, settle_s: float) -> Counted:
    """Read until told to end, and at least so many rows; the resources after `settle_s` seconds are `settled`."""
    os.nice(5)  # several that never pause, beside one that is waited for
    reading = Reading(path, seed)
    ready()
    settled: Counted = {}
    begun = time.monotonic()
    while goes_on() or reading.rows < rows_min:
        reading.round()
        if not settled and time.monotonic() - begun > settle_s:
            settled = resources()
    counted = {"rows": reading.rows, "rounds": reading.rounds, "errors": dict(reading.errors)}
    return counted | {"skipped": reading.skipped, "settled": settled or resources()}


class HistoryWatch:
    """Collects the history of a store while it is written; old lines leave it."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self.reasons: dict[int, str] = {}

    def look(self) -> None:
        for each in deletions(LocalFileSystem(), self._path):
            if each.log_base is not None:
                self.reasons[each.log_base] = each.reason


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
