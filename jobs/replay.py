"""Job ``replay``: messages of a store appended to another one, at full pace or at that of the original.

::

    plan     offsets of each queue, cut at physical offsets (or store times) ──► parts 0, 1, 2 …   kept in a file
    part     read ──► where, mapped ──► sink: batch of application replay-…, version = number of the part
    ledger of the target ──► the last part that was committed ──► a restarted job goes on after it

The sink appends each part exactly once, so a kill at any point repeats and loses nothing. The file fixes the parts: the
source may have grown since. Parts follow each other, and so do the messages of a queue.
"""

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from segmentlog.query.cursor import check_some, held_ranges
from segmentlog.query.rows import QueueSpans
from segmentlog.query.source import StoreSource
from segmentlog.store import ChangedReplayError, ConfigError, OnLoss, QueueKey, QueueRange, ScanSpec, Snapshot
from segmentlog.store.sink import last_commit

from .backfill.planning import offset_options
from .report import Report
from .state_file import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from segmentlog.store import CommittedBatch

_log = logging.getLogger(__name__)

PART_BYTES: Final = 1 << 30
_PART_S: Final = 1.0  # seconds of replay in a part at the original pace
_PARTS_MAX: Final = 20_000
_TASK_BYTES: Final = 64 << 20
_MESSAGE: Final = ("topic", "queueId", "body", "properties", "bornTimestamp", "flag", "reconsumeTimes")
"""Columns that are written: the properties hold tags, keys and unique key."""
_ASKED: Final = ("queueOffset", "tags", "keys", "uniqKey", "storeTimestamp", "msgId", "bornHost")
"""Columns that a condition may name as well."""


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """Settings of `run`.

    Attributes
    ----------
    speed
        Multiple of the original pace; None for full pace.
    read, write
        Further options of the source, such as ``tags`` and ``sqlFilter``, and of the sink, such as file sizes.
    where
        Condition in Spark's SQL on the columns of a message, such as ``body LIKE '%error%'``.
    map_topic
        Target topic by topic.
    key_prefix
        Text before each key.
    part_bytes
        Stored bytes of a part at full pace.
    again
        Begin a job that is finished, or whose state file is lost, once more.
    """

    speed: float | None = None
    read: Mapping[str, str] = field(default_factory=dict)
    write: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    map_topic: Mapping[str, str] = field(default_factory=dict)
    key_prefix: str = ""
    part_bytes: int = PART_BYTES
    again: bool = False


def run(
    spark: "SparkSession",
    source: StoreSource,
    ranges: Sequence[QueueRange],
    target: str,
    state: str,
    *,
    settings: ReplaySettings,
    asked: Mapping[str, object],
    stop: threading.Event,
) -> Report:
    """Append messages to another store until all parts are committed, or ``stop`` is set; continue a job.

    Parameters
    ----------
    source, ranges
        The store and the messages. A job that continues keeps the ranges with which it began.
    target
        Store that is appended to; it is created if need be.
    state
        State file; it is made for a new job.
    asked
        What identifies the job: the file refuses another one.

    Returns
    -------
    Report
        A row per queue of the target, of this run. It has findings if parts are left.

    Raises
    ------
    ConfigError, FormatError
        If the state file is of another job or damaged, or lost while the target has parts of this job.
    """
    if os.path.realpath(target) == os.path.realpath(source.path):
        raise ConfigError("the target of the replay is its source", fix="Name another directory as TO")
    with StateFile.open(state) as file:
        plan = file.load("replay", asked, _decoded)
        if plan is None or (settings.again and _parts_done(target, plan, settings) >= len(plan)):
            plan = _made(source, ranges, target, file, settings=settings, asked=asked)
        first = done = _parts_done(target, plan, settings)
        if done >= len(plan):
            _log.warning("%s: all parts of this job were replayed before; --again replays them once more", state)
        began = time.monotonic()
        totals = _Totals()
        for number in range(first, len(plan)):
            if stop.wait(max(0.0, plan.due_s(number, first, settings.speed) - (time.monotonic() - began))):
                break
            part = plan.part(number)
            if part:
                _append(_frame(spark, source, part, settings), target, plan.app, number, settings)
                totals.add_part(last_commit(target, plan.app), number)
            done = number + 1
            _log.info("part %d of %d replayed", done, len(plan), extra={"done": done, "of": len(plan)})
    return totals.report(len(plan), min(first, len(plan)), max(0, len(plan) - done), time.monotonic() - began)


@dataclass(frozen=True)
class _Plan:
    """Parts of a job: queue offsets at which each queue is cut, and the store times of the cuts at a pace."""

    app: str
    cuts: Mapping[QueueKey, Sequence[int]]
    times: Sequence[int] | None

    def __len__(self) -> int:
        return max((len(each) - 1 for each in self.cuts.values()), default=0)

    def part(self, number: int) -> list[QueueRange]:
        """Return the messages of a part; empty ranges are left out."""
        found = [QueueRange(key, cuts[number], cuts[number + 1]) for key, cuts in self.cuts.items()]
        return [each for each in found if len(each)]

    def due_s(self, number: int, first: int, speed: float | None) -> float:
        """Return the seconds after the start at part ``first`` at which the original had stored all of a part."""
        if speed is None or self.times is None:
            return 0.0
        return (self.times[number + 1] - self.times[first]) / 1000 / speed


def _made(
    source: StoreSource,
    ranges: Sequence[QueueRange],
    target: str,
    state: StateFile,
    *,
    settings: ReplaySettings,
    asked: Mapping[str, object],
) -> _Plan:
    """Return the plan of a new job, which is in the state file then."""
    check_some(ranges)
    identity = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    app = f"replay-{identity}"
    if _last(target, app) is not None:
        if not settings.again:
            raise ConfigError(
                f"{target} has parts of this job, and --state {state.path} does not exist",
                fix="Name the state file with which it began, or pass --again to append all messages once more",
            )
        app += f"-{time.time_ns()}"
    cuts, times = _cut(source.open(), ranges, settings)
    plan = _Plan(app, cuts, times)
    queues = [{"topic": key.topic, "queueId": key.queue_id, "cuts": cuts} for key, cuts in plan.cuts.items()]
    state.replace([json.dumps({"app": app, "asked": asked, "times": times, "queues": queues}).encode()])
    return plan


def _cut(
    snapshot: Snapshot, ranges: Sequence[QueueRange], settings: ReplaySettings
) -> tuple[dict[QueueKey, list[int]], list[int] | None]:
    """Cut queues at the same places of the log, or at the same store times."""
    held = held_ranges(snapshot, ranges, OnLoss.FAIL)
    if settings.speed is None:
        places = {each.key: _places(snapshot, each) for each in held}
        first = min((int(each[0]) for each in places.values() if each.size), default=0)
        last = max((int(each[-1]) for each in places.values() if each.size), default=0)
        step = max(settings.part_bytes, (last - first) // _PARTS_MAX + 1)
        cuts = np.arange(first + step, last + 1, step)
        return {
            each.key: [each.start, *(each.start + np.searchsorted(places[each.key], cuts)).tolist(), each.stop]
            for each in held
        }, None
    spans = [span for span in (_times(snapshot, each) for each in held) if span is not None]
    first, last = min((each for each, _ in spans), default=0), max((each for _, each in spans), default=0)
    step = max(int(settings.speed * _PART_S * 1000), (last - first) // _PARTS_MAX, 1)
    times = np.arange(first + step, last + 1, step)
    found = {}
    for each in held:
        at = np.clip(snapshot.offsets_at(each.key, times), each.start, each.stop) if times.size else times
        found[each.key] = [each.start, *at.tolist(), each.stop]
    return found, [first, *times.tolist(), last + 1]


def _places(snapshot: Snapshot, wanted: QueueRange) -> Any:
    """Return the physical offsets of the messages of a range, (n,) int64, from the ConsumeQueue alone."""
    spec = ScanSpec(columns=("physicalOffset",), on_loss=OnLoss.FAIL)
    tasks = snapshot.plan([wanted], max_bytes=_TASK_BYTES, spec=spec)
    found = [batch["physicalOffset"].to_numpy() for task in tasks for batch in snapshot.scan(task, spec)]
    # A place whose message is lost repeats the next entry, and may be left out of a scan.
    places = np.concatenate(found) if found else np.zeros(0, np.int64)
    if places.size != len(wanted):
        places = np.asarray(snapshot.entries.places(wanted.key, np.arange(wanted.start, wanted.stop)))
    return places


def _times(snapshot: Snapshot, wanted: QueueRange) -> tuple[int, int] | None:
    """Return the store times of the first and of the last message of a range."""
    if not len(wanted):
        return None
    ends = [snapshot.entries.place_of(wanted.key, each) for each in (wanted.start, wanted.stop - 1)]
    first, last = (None if each is None else snapshot.log.store_time_at(each) for each in ends)
    return None if first is None or last is None else (first, last)


def _frame(
    spark: "SparkSession", source: StoreSource, part: Sequence[QueueRange], settings: ReplaySettings
) -> "DataFrame":
    """Return the messages of a part, as they are written."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name; a plan needs no Spark

    options = {
        "checkCrc": "true",  # the copy gets a checksum of its own
        **offset_options({each.key: (each.start, each.stop) for each in part}),
        "readFrom": source.read_from.value,
        **({"commitLogPaths": ",".join(source.commit_log_paths)} if source.commit_log_paths else {}),
        **settings.read,
    }
    # Spark tells the source neither columns nor conditions: a condition may name any of the messages' own.
    written = [*_MESSAGE, *(["keys"] if settings.key_prefix else [])]
    columns = written if settings.where is None else list(dict.fromkeys([*written, *_ASKED]))
    frame = spark.read.format("segmentlog").options(**options, columns=",".join(columns)).load(source.path)
    if settings.where is not None:
        frame = frame.where(settings.where).select(*written)
    if settings.map_topic:
        mapped: dict[Any, Any] = dict(settings.map_topic)
        frame = frame.replace(mapped, subset=["topic"])
    if settings.key_prefix:
        prefix = F.lit(settings.key_prefix)
        keys = F.filter(F.split("keys", " "), lambda key: key != "")  # as RocketMQ reads them
        frame = frame.withColumn("keys", F.array_join(F.transform(keys, lambda key: F.concat(prefix, key)), " "))
    return frame


def _append(frame: "DataFrame", target: str, app: str, number: int, settings: ReplaySettings) -> None:
    options = {"queueSelector": "column", **settings.write, "txnAppId": app, "txnVersion": str(number)}
    frame.write.format("segmentlog").mode("append").options(**options).save(target)


def _last(target: str, app: str) -> "CommittedBatch | None":
    return last_commit(target, app) if os.path.isdir(target) else None


def _parts_done(target: str, plan: _Plan, settings: ReplaySettings) -> int:
    """Return the number of parts up to the last one that the target shows.

    `ChangedReplayError` if the last one has other messages than planned: a job with another state file appended it.
    """
    found = _last(target, plan.app)
    if found is None:
        return 0
    planned = sum(map(len, plan.part(found.version))) if found.version < len(plan) else 0
    is_chosen = settings.where is not None or bool(settings.read)
    if found.rows > planned or (found.rows < planned and not is_chosen):
        raise ChangedReplayError(
            f"part {found.version} of {len(plan)} of this replay has {found.rows} messages in {target}, and its state "
            f"file plans {planned} for it: a replay of the same arguments with another state file appended it",
            path=target,
            fix="Continue with the state file of that replay. Or name a new --state and pass --again, which appends "
            "all messages once more",
        )
    # A kill leaves its batch hidden until the store is opened: it is committed once more.
    hidden = Snapshot.open(target).hidden_from()
    return found.version + (hidden is None or hidden >= found.stop)


class _Totals(QueueSpans):
    """Messages that this run appended, by queue of the target."""

    size = 0

    def add_part(self, batch: "CommittedBatch | None", number: int) -> None:
        """Add a part, unless no message of it was chosen."""
        if batch is None or batch.version != number:
            return
        self.size += batch.bytes
        for span in batch.queues:
            self.add(span.topic, span.queue_id, span.rows, span.first, span.last)

    def report(self, parts: int, before: int, left: int, seconds: float) -> Report:
        numbers = {
            "messages": self.messages,
            "bytes": self.size,
            "parts": parts,
            "partsBefore": before,
            "partsLeft": left,
            "seconds": round(seconds, 3),
            "perSecond": round(self.messages / max(seconds, 1e-9)),
        }
        return Report(numbers=numbers, table=self.table(), has_findings=left > 0)


def _decoded(head: Any, _: Sequence[Any]) -> _Plan:
    cuts = {QueueKey(each["topic"], each["queueId"]): each["cuts"] for each in head["queues"]}
    return _Plan(head["app"], cuts, head["times"])
