"""S14: one writes, four read, a stream runs, retention deletes, all at once; every row is right, or its loss is said.

::

    writer ──► store ◄── retention, every 50 ms: the first segments, and older files
                 ▲ ▲
      4 readers ─┘ └─ Spark stream                each row tells by its place what it should be (`support.telling`)

The same with a store that deletes its own expired files: a message is lost only if its segment is in the history.
And a store whose end is overwritten with zeros in place, over and over, as recovery does it: no reader dies of it.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.store import QueueKey, QueueRange, ScanSpec, StoreReader
from segmentlog.store.maintenance import verify
from support.expiring_store import ExpiringProcess, HistoryWatch, log_start
from support.scale import scale
from support.soak_worker import BATCHED, CONFIG, QUEUES, STAGED, STAGED_ROWS, Report, SoakProcess, write_once
from support.telling import COLUMNS, check

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

SECONDS = scale(2, 20, 3600)
CUT_SECONDS = scale(2, 5, 600)
EXPIRING_SECONDS = scale(2, 20, 3600)
SETTLED_SECONDS_MAX = 5
LOST_LEAST = scale(0, 1, 1)
"""Of a stream; in the first seconds it may not have begun, or be fast enough."""
LATE_READERS = 2
ROWS_PER_SECOND = 8000
ROWS_READ_MIN = 25_000 * SECONDS  # a million in forty seconds
READERS = scale(2, 4, 4)
PACE = scale(0, 1, 1)
"""Least work per second is multiplied by it: on a busy machine a quick run only has to do some of each."""
STARTS_SECONDS_MAX = 300
KEEP = 6
MEMORY_KIB_MAX = 512 << 10
GROWTH_KIB_MAX = 192 << 10
MAPS_MAX = 17


@contextmanager
def running(*roles: tuple[str, dict[str, object]], of: type[SoakProcess] = SoakProcess) -> Iterator[list[SoakProcess]]:
    started: list[SoakProcess] = []
    try:
        for role, options in roles:
            started.append(of(role, **options))
        yield started
    finally:
        for process in started:
            process.kill()


def ended(processes: list[SoakProcess]) -> list[Report]:
    return [process.end() for process in processes]


def let_run(processes: list[SoakProcess], follower: "Follower", done: "Callable[[], bool]", seconds_max: float) -> None:
    """Wait until something is done; raises what ended too early."""
    most = time.monotonic() + seconds_max
    while not done():
        for process in processes:
            if not process.runs:
                process.end()  # says why
                raise AssertionError(f"the {process.role} ended by itself")
        if not follower.query.isActive:
            follower.query.awaitTermination(1)  # raises what ended it
        assert time.monotonic() < most
        time.sleep(0.1)


def look_at_readers(counted: list[Report]) -> None:
    for each in counted:
        assert each["memory"] < MEMORY_KIB_MAX, each
        assert each["memory"] < each["settled"]["memory"] + GROWTH_KIB_MAX, each
        assert each["maps"] <= MAPS_MAX, each
        assert each["descriptors"] <= each["settled"]["descriptors"] + MAPS_MAX, each


class Follower:
    """A streaming query whose rows are checked as they come."""

    def __init__(self, spark: "SparkSession", path: Path, checkpoint: Path) -> None:
        self.rows = self.batches = self.missed = 0
        self._next: dict[tuple[str, int], int] = {}
        frame = spark.readStream.format("segmentlog").options(subscribePattern=".*", startingOffsets="earliest")
        frame = frame.option("failOnDataLoss", "false").option("checkCrc", "true").load(str(path))
        sink = frame.select(*COLUMNS).writeStream.foreachBatch(self._take)
        self.query = sink.option("checkpointLocation", str(checkpoint)).start()

    def _take(self, frame: "DataFrame", _: int) -> None:
        table = frame.toArrow()
        check(table)
        self.batches += 1
        self.rows += table.num_rows
        columns = (table.column(name).to_pylist() for name in COLUMNS[:3])
        for topic, queue_id, offset in zip(*columns, strict=True):
            after = self._next.get((topic, queue_id), 0)
            assert offset >= after, f"{topic}/{queue_id}: {offset} again, or too late: {after} was next"
            self.missed += offset - after
            self._next[topic, queue_id] = offset + 1

    def end(self) -> Report:
        """Stop; what was counted, by the query itself too."""
        progress = self.query.lastProgress
        self.query.stop()
        assert progress is not None
        (source,) = progress["sources"]
        end = source["endOffset"]
        end = end if isinstance(end, dict) else json.loads(end)
        (store,) = end["stores"].values()
        lost = sum(topic.get("lost", 0) for topic in store["topics"].values())
        return {"rows": self.rows, "batches": self.batches, "missed": self.missed, "counted as lost": lost}


@pytest.mark.spark
@pytest.mark.timeout(SECONDS + 600)
def test_one_writes_four_read_a_stream_runs_and_retention_deletes(
    spark: "SparkSession", tmp_path: Path, report: "Callable[[str, object], None]"
) -> None:
    store = tmp_path / "store"
    at = {"path": str(store)}
    behind = ("retention", at | {"keep": KEEP, "every_ms": 50})
    with running(("writer", at | {"rows_per_second": ROWS_PER_SECOND}), behind) as (writer, retention):
        follower = Follower(spark, store, tmp_path / "checkpoint")
        try:
            let_run([writer, retention], follower, lambda: follower.batches > 0, STARTS_SECONDS_MAX)
            many = {"rows_min": ROWS_READ_MIN // READERS}
            settled = {"settle_s": min(SETTLED_SECONDS_MAX, SECONDS / 2)}
            with running(*(("reader", at | many | settled | {"seed": seed}) for seed in range(READERS))) as readers:
                over = time.monotonic() + SECONDS
                let_run([writer, retention, *readers], follower, lambda: time.monotonic() > over, SECONDS + 300)
                read = ended(readers)
            streamed = follower.end()
        finally:
            follower.query.stop()
        deleted, written = ended([retention, writer])
    report("soak: written", written)
    report("soak: deleted", deleted)
    for each in read:
        report("soak: read", each)
    report("soak: streamed", streamed)
    look_at_readers(read)
    rows = streamed["rows"] + sum(each["rows"] for each in read)
    assert rows >= ROWS_READ_MIN
    assert deleted["segments"] > SECONDS * PACE
    assert deleted["queue files"] > SECONDS * PACE / 4
    assert sum(sum(each["errors"].values()) + each["skipped"] for each in read), "nothing was ever lost to a reader"
    assert streamed["rows"] > SECONDS * PACE * 100
    assert deleted["index files"]
    assert streamed["counted as lost"] <= streamed["missed"]
    assert written["batches"] * STAGED_ROWS * QUEUES == written["written"][STAGED]


def judge(store: Path, written: Report, history: HistoryWatch) -> int:
    """Compare a store with what was written to it and what its history has; return the number of messages left.

    Queues and log agree, so a message is missing only if its segment is; and each missing segment is in the history.
    """
    start = log_start(store)
    assert set(history.reasons) == set(range(0, start, CONFIG.segment_bytes)), "other segments are gone"
    assert set(history.reasons.values()) == {"above log_bytes_max"}
    assert len(history.reasons) == written["deleted"]["commitlog"]
    assert written["failures"] == 0
    assert verify(store).findings == ()
    reader = StoreReader.open(store)
    spec = ScanSpec(columns=(*COLUMNS, "physicalOffset"), check_crc=True)
    left = 0
    for name, (kept_from, end) in written["kept"].items():
        topic, _, queue_id = name.rpartition("/")
        bounds = reader.bounds(QueueKey(topic, int(queue_id)))
        assert bounds.min_offset <= kept_from, f"{name} begins at {bounds.min_offset}, {kept_from} is in the log"
        assert bounds.max_offset == end
        tasks = reader.plan([QueueRange(bounds.key, bounds.min_offset, end)], max_bytes=16 << 20)
        batches = [batch for task in tasks for batch in reader.scan(task, spec)]
        offsets: list[int] = []
        for batch in batches:
            check(batch)
            offsets += batch.column("queueOffset").to_pylist()
            assert min(batch.column("physicalOffset").to_pylist()) >= start
        assert offsets == list(range(bounds.min_offset, end)), name
        left += len(offsets)
    return left


@pytest.mark.timeout(EXPIRING_SECONDS + 600)
def test_a_store_deletes_its_own_files_under_readers_and_a_stream(
    tmp_path: Path, report: "Callable[[str, object], None]"
) -> None:
    store = tmp_path / "store"
    at, history = {"path": str(store)}, HistoryWatch(store)
    others = [("stream", at), *(("reader", at | {"seed": seed}) for seed in range(LATE_READERS))]
    with running(("writer", at | {"rows_per_second": ROWS_PER_SECOND}), of=ExpiringProcess) as (writer,):
        with running(*others, of=ExpiringProcess) as processes:
            over = time.monotonic() + EXPIRING_SECONDS
            while time.monotonic() < over:
                assert all(each.runs for each in (writer, *processes)), [each.end() for each in processes]
                history.look()
                time.sleep(0.2)
            streamed, *read = ended(processes)
        (written,) = ended([writer])
    history.look()
    left = judge(store, written, history)
    report("expiring soak: written", {name: found for name, found in written.items() if name != "kept"})
    report("expiring soak: left", {"messages": left, "deleted segments": len(history.reasons)})
    for each in (streamed, *read):
        report("expiring soak: read", each)
    assert len(history.reasons) > EXPIRING_SECONDS * PACE
    assert LOST_LEAST <= streamed["counted as lost"] <= streamed["missed"]
    assert streamed["rows"] > EXPIRING_SECONDS * PACE * 1000
    assert sum(each["rows"] for each in read) > EXPIRING_SECONDS * PACE * 1000
    assert sum(sum(each["errors"].values()) for each in read), "no reader came too late"


@pytest.mark.spark
@pytest.mark.scaled(quick=0)  # the test above without Spark
@pytest.mark.timeout(EXPIRING_SECONDS + 600)
def test_a_store_deletes_its_own_files_under_a_query(
    spark: "SparkSession", tmp_path: Path, report: "Callable[[str, object], None]"
) -> None:
    store = tmp_path / "store"
    history = HistoryWatch(store)
    options: dict[str, object] = {"path": str(store), "rows_per_second": ROWS_PER_SECOND}
    with running(("writer", options), of=ExpiringProcess) as (writer,):
        follower = Follower(spark, store, tmp_path / "checkpoint")
        try:
            let_run([writer], follower, lambda: follower.batches > 0, STARTS_SECONDS_MAX)
            over = time.monotonic() + EXPIRING_SECONDS

            def done() -> bool:
                history.look()
                return time.monotonic() > over

            let_run([writer], follower, done, EXPIRING_SECONDS + 300)
            streamed = follower.end()
        finally:
            follower.query.stop()
        history.look()
        (written,) = ended([writer])
    history.look()
    left = judge(store, written, history)
    report("expiring soak: streamed", streamed | {"left": left, "deleted segments": len(history.reasons)})
    assert len(history.reasons) > EXPIRING_SECONDS * PACE
    assert streamed["rows"] > EXPIRING_SECONDS * PACE * 100
    assert streamed["counted as lost"] <= streamed["missed"]


@pytest.mark.timeout(CUT_SECONDS + 600)
def test_a_log_that_is_truncated_in_place(tmp_path: Path, report: "Callable[[str, object], None]") -> None:
    store = tmp_path / "store"
    write_once(store, 12_000)
    at = {"path": str(store)}
    reading = at | {"may_be_damaged": True, "settle_s": min(SETTLED_SECONDS_MAX, CUT_SECONDS / 2)}
    readers = [("reader", reading | {"seed": seed}) for seed in range(READERS)]
    with running(("cutter", at | {"seed": 1, "seconds": CUT_SECONDS}), *readers) as processes:
        time.sleep(CUT_SECONDS)
        cuts, *read = ended(processes)
    report("soak: cut", cuts)
    for each in read:
        report("soak: read while it was cut", each)
    look_at_readers(read)
    assert min(cuts["messages"], cuts["cuts"], sum(each["rows"] for each in read)) > 0
    # Whether a reader is at the end at the moment of a cut depends on the machine: errors are reported above.
    assert BATCHED in os.listdir(store / "consumequeue")
