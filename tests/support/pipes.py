"""A stream from one store into another, and whether all of it came through, once and in order.

::

    Feed ──► source store ──► spark.readStream ──► writeStream ──► sink store
       numbers its messages    adds where each was                  `Pipe.check`: queue by queue, the same messages

    checkpoint   offsets/N    batch N is to hold these messages    written before the batch is run
                 commits/N    batch N has ended                    written after the sink has committed it
                              Spark repeats the last batch that has offsets and no commit
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from segmentlog.spark import last_commit
from segmentlog.store import Flush, MessageStore, Outgoing, QueueKey, Snapshot, StoreConfig

from .batches import batch_of
from .reading import by_queue, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = StoreConfig(flush=Flush.ASYNC, segment_bytes=256 << 10, queue_segment_entries=200, index=False)
QUEUES = (("Orders", 3), ("Payments", 1))
SINK = {
    "mappedFileSizeCommitLog": "256k",
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
_TIMED_OUT_MAX = 10
_WORKER_TIMED_OUT = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker to connect back",
)
"""Spark 4.3 waits ten seconds for a Python worker, which a busy machine exceeds: the query ends as if stopped."""
Contents = dict[QueueKey, list[bytes]]
Change = Callable[["DataFrame"], "DataFrame"]


def _as_they_are(frame: "DataFrame") -> "DataFrame":
    return frame


def is_worker_timeout(error: BaseException | None) -> bool:
    """Tell whether a query ended because a Python worker did not start in time."""
    return error is not None and any(said in str(error) for said in _WORKER_TIMED_OUT)


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def planned(self) -> int:
        """The last batch that has offsets; -1 without one."""
        return self._last("offsets")

    @property
    def ended(self) -> int:
        """The last batch that Spark knows to have ended; -1 without one."""
        return self._last("commits")

    @property
    def query(self) -> str | None:
        """The query's id; None before it was started."""
        metadata = self.folder / "metadata"
        found = re.search(r'"id":"([^"]+)"', metadata.read_text()) if metadata.exists() else None
        return found[1] if found else None

    def forget_commits(self, batches: int) -> None:
        """Make the last batches unfinished for Spark, as after a crash that follows the sink's commit."""
        self._forget("commits", self.ended - batches)

    def forget_batches(self, batches: int) -> None:
        """Take the checkpoint back by some batches: the first of them is repeated, the others are planned again."""
        last = self.ended - batches
        self._forget("commits", last)
        self._forget("offsets", last + 1)

    def _forget(self, log: str, last: int) -> None:
        for file in (self.folder / log).iterdir():
            number = re.fullmatch(r"\.?(\d+)(\.crc)?", file.name)
            if number is not None and int(number[1]) > last:
                file.unlink()

    def _last(self, log: str) -> int:
        folder = self.folder / log
        names = [file.name for file in folder.iterdir()] if folder.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)


class Pipe:
    """A source store, a sink store, and the checkpoint of the stream between them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.source = folder / "source"
        self.sink = folder / "sink"
        self.checkpoint = Checkpoint(folder / "checkpoint")
        self.timed_out = 0
        """Number of times that Spark stopped waiting for a Python worker of a draining query, and started it again."""

    def start(self, spark: "SparkSession", sink_options: Mapping[str, str] | None = None, **options: str) -> Any:
        """Start the stream without an end; other options are the source's."""
        return self._writer(spark, options, _as_they_are, "segmentlog", sink_options or {}).start(str(self.sink))

    def drain(
        self,
        spark: "SparkSession",
        *,
        change: Change = _as_they_are,
        sink_format: str = "segmentlog",
        sink_options: Mapping[str, str] | None = None,
        **options: str,
    ) -> list[Mapping[str, Any]]:
        """Run the stream until all that is there was read; what Spark says of its batches."""
        writer = self._writer(spark, options, change, sink_format, sink_options or {})
        progress: list[Mapping[str, Any]] = []
        while True:
            running = writer.trigger(availableNow=True).start(str(self.sink))
            try:
                assert running.awaitTermination(600), "the stream does not come to an end"
            except Exception as error:
                if not is_worker_timeout(error) or self.timed_out == _TIMED_OUT_MAX:
                    raise
                self.timed_out += 1
            else:
                return progress + list(running.recentProgress)
            progress += running.recentProgress

    def _writer(
        self,
        spark: "SparkSession",
        options: Mapping[str, str],
        change: Change,
        sink_format: str,
        sink_options: Mapping[str, str],
    ) -> Any:
        given = {"subscribePattern": ".*", "startingOffsets": "earliest"} | dict(options)
        frame = change(spark.readStream.format("segmentlog").options(**given).load(str(self.source)))
        place = "map('at', concat(topic, '/', queueId, '/', queueOffset)) as properties"
        given = SINK | {"checkpointLocation": str(self.checkpoint.folder)} | dict(sink_options)
        writer = frame.selectExpr("topic", "queueId", "body", place).writeStream.format(sink_format)
        return writer.outputMode("append").options(**given)

    @property
    def committed(self) -> int:
        """The last batch that the sink's ledger has; -1 without one."""
        query = self.checkpoint.query
        found = last_commit(self.sink, query) if query is not None and self.sink.exists() else None
        return -1 if found is None else found.version

    def check(self) -> int:
        """Check that the sink has all rows of the source, once and in order of each queue; return their number."""
        sent, came = contents(self.source), contents(self.sink)
        for key, bodies in sent.items():
            assert bodies == [b"%s/%d/%d" % (key.topic.encode(), key.queue_id, n) for n in range(len(bodies))]
        problems = differences(sent, came)
        assert problems == []
        return sum(map(len, came.values()))


def contents(path: Path) -> Contents:
    """Read the bodies of a whole store, queue by queue; each message says itself where it was in its source."""
    found = by_queue(read(Snapshot.open(path), columns=("topic", "queueId", "body", "properties"), max_bytes=1 << 22))
    bodies = {}
    for key, rows in found.items():
        bodies[key] = [row["body"] for row in rows]
        assert all(row["properties"].get("at", row["body"].decode()).encode() == row["body"] for row in rows)
    return bodies


def differences(sent: Contents, came: Contents) -> list[str]:
    """Say of each queue what is missing, there too often, altered, or in another order."""
    problems = []
    for key in sorted(sent.keys() | came.keys()):
        wanted, found = sent.get(key, []), came.get(key, [])
        missing, more = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        if missing or more:
            few = [sorted(each)[:3] for each in (missing, more)]
            problems.append(f"{key}: {missing.total()} missing {few[0]}, {more.total()} too many {few[1]}")
        elif wanted != found:
            problems.append(f"{key}: all of them, in another order")
    return problems


class Feed:
    """Appends to a source store, at once or all the time; a context manager that has the store open."""

    def __init__(self, path: Path, rows: int = 12, pause_s: float = 0.05) -> None:
        self._path, self._rows, self._pause_s = path, rows, pause_s
        self._queues = [(topic, queue) for topic, queues in QUEUES for queue in range(queues)]
        self._turn = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._store = MessageStore.open(self._path, CONFIG)
        snapshot = self._store.snapshot()
        bounds = [each for topic in snapshot.topics() for each in snapshot.queues(topic)]
        self._next = dict.fromkeys(self._queues, 0) | {tuple(each.key): each.max_offset for each in bounds}
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        self._store.close()

    def run(self) -> Self:
        self._thread.start()
        return self

    @property
    def total(self) -> int:
        return sum(self._next.values())

    @property
    def shortest(self) -> int:
        return min(self._next.values())

    def put(self, rows: int) -> None:
        made = []
        for _ in range(rows):
            topic, queue = self._queues[self._turn % len(self._queues)]
            number = self._next[topic, queue]
            self._next[topic, queue] += 1
            self._turn += 1
            made.append(Outgoing(topic=topic, body=b"%s/%d/%d" % (topic.encode(), queue, number), queue_id=queue))
        self._store.append_batch(batch_of(made))
        self._store.wait_dispatched()

    def _run(self) -> None:
        while not self._done.is_set():
            self.put(self._rows)
            time.sleep(self._pause_s)
