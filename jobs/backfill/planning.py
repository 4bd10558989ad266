"""Planning of a backfill: which parts a target still lacks.

::

    window     held by the target           planned
    over       nothing                      part 0: each queue from the window's start to its end
    over       parts, none planned after    a part from where they end to the window's end
               the window's end
    over       a part planned after it      nothing; with catch-up a part for messages that were appended since
    still open anything                     an error; a job that follows writes a part with what is there
    over, not  anything                     a part with what is there
    pushed yet

Offsets come from the same binary searches as those of readers, so that a backfill has the messages of a read with
``startingTimestamp`` and ``endingTimestamp``.
"""

import json
import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from segmentlog.query.parts import Offsets, Part, Window, Written, ends_of, held
from segmentlog.query.position import search_times
from segmentlog.query.selection import Topics, select
from segmentlog.query.source import StoreSource
from segmentlog.query.times import StartAfterEndError, iso, midnight_ms
from segmentlog.store import ConfigError, DataLossError, QueueBounds, QueueKey, QueueRange, Remedy, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

# Windows and parts

_HOUR_MS: Final = 3_600_000
SETTLED_MS: Final = 10_000
"""A window is over this long after its end: a broker stores a message somewhat after it has read its clock."""
_TIME: Final = "storeTimestamp"


class Length(Enum):
    """Length of windows: a day of the time zone, or an hour of UTC."""

    DAY = "day"
    HOUR = "hour"


class Target(Protocol):
    """Files or a table. A job holds it from `open` to `close`; one job at a time."""

    def open(self) -> None:
        """Check it, take it, and finish or remove what a killed run has left."""

    def close(self) -> None:
        """Let other jobs have it."""

    def parts(self, since_ms: int = 0, until_ms: int | None = None) -> Sequence[Part]:
        """Return the parts that it holds, of windows that overlap with a period."""

    def recorded(self) -> Sequence[Part]:
        """Return the parts that were ever written into it. Some may have been removed since."""

    def write(self, part: Part, frame: "DataFrame | None") -> Written:
        """Add a part as a whole, or not at all; ``frame`` has its messages, None if there are none."""


def windows(start_ms: int, end_ms: int, length: Length, zone: tzinfo = UTC) -> Iterator[Window]:
    """Yield the windows that cover a period; the first and the last may reach out of it."""
    if length is Length.HOUR:
        for first in range(start_ms // _HOUR_MS * _HOUR_MS, end_ms, _HOUR_MS):
            yield Window(first, first + _HOUR_MS)
        return
    day = datetime.fromtimestamp(start_ms / 1000, zone).date()
    while (first := midnight_ms(day, zone)) < end_ms:
        day += timedelta(days=1)
        yield Window(first, midnight_ms(day, zone))


# Planning


@dataclass(frozen=True, kw_only=True)
class Request:
    """Messages that are asked for.

    Attributes
    ----------
    source : StoreSource
    topics : tuple of str
    start_ms, end_ms : int
        Store times in milliseconds since 1970, half-open. They begin and end windows.
    length : Length
    zone : datetime.tzinfo
        Of days; hours are those of UTC.
    columns : tuple of str
    options : Mapping[str, str]
        Further options of the reader, such as ``tags``.
    body : str
        Format and schema of bodies that become columns, as text: a target has one.
    skips_lost : bool
        Whether windows are written whose first messages retention may have deleted.
    """

    source: StoreSource
    topics: tuple[str, ...]
    start_ms: int
    end_ms: int
    length: Length = Length.DAY
    zone: tzinfo = UTC
    columns: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    skips_lost: bool = False

    def windows(self, end_ms: int | None = None) -> list[Window]:
        """Return the windows of the period, up to another end if there is one; `ConfigError` if they do not fit it."""
        end = self.end_ms if end_ms is None else end_ms
        if self.start_ms >= end:
            problem = f"the period from {iso(self.start_ms)} to {iso(end)} is empty"
            raise StartAfterEndError(problem, fix="Name an end after the start; the end is exclusive")
        found = list(windows(self.start_ms, end, self.length, self.zone))
        fits = found[0].start_ms == self.start_ms and (end_ms is not None or found[-1].end_ms == end)
        if not fits:
            whole = f"{self.length.value}s of {self.zone}"
            problem = f"the period from {iso(self.start_ms)} to {iso(end)} is not whole {whole}"
            fix = f"Name a period such as {iso(found[0].start_ms)} to {iso(found[-1].end_ms)}"
            also = ", or use windows of an hour" if self.length is Length.DAY else ""
            raise ConfigError(problem, fix=fix + also)
        return found


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Parts that are missing, the windows that are finished, and the start of the first one that is not."""

    parts: Sequence[Part]
    finished: Sequence[Window]
    open_ms: int


class Planner:
    """Parts of a request, planned from one look at the store."""

    def __init__(self, request: Request, now_ms: int) -> None:
        self._request = request
        self._snapshot = request.source.open()
        self._now_ms, self._seen_ms = now_ms, now_ms - SETTLED_MS
        archived = self._snapshot.location.archived
        if archived is not None:  # messages that came after its last push are not in it
            self._seen_ms = min(self._seen_ms, archived.manifest.pushed_ms or self._seen_ms)
        ((_, self._queues),) = select([self._snapshot], Topics(request.topics), argument="TOPIC")

    def missing(self, parts: Sequence[Part], *, is_open: bool = False) -> Plan:
        """Return the plan for a target that holds some parts; ``is_open`` allows windows that are not over."""
        return search_times(self._snapshot, lambda: self._missing(parts, is_open=is_open))

    def waiting(self) -> "Waiting":
        """Return a counter of the messages that were appended since the look at the store; planning ends with it."""
        self._snapshot.drop_maps()  # while messages are waited for, the space of deleted files must not be held
        return Waiting(self._snapshot, self._request.topics, self._queues)

    def _missing(self, parts: Sequence[Part], *, is_open: bool) -> Plan:
        found = held(parts)
        others = sorted(found)
        planned, finished = [], []
        asked = self._windows(is_open)
        for window in asked:
            check_alignment(window, others)
            there = found.get(window, [])
            if any(part.finishes for part in there):
                finished.append(window)
                continue
            if not is_open and window.end_ms > self._now_ms - SETTLED_MS:
                problem = f"the window {window} is not over, or has been for less than {SETTLED_MS // 1000} seconds"
                raise ConfigError(problem, fix="End the period before it, or follow the store")
            part = self._part(window, there)
            if not (is_open or part.finishes):
                text = "%s was last pushed at %s, before the window %s was over, which stays open: run it again later"
                _log.warning(text, self._snapshot.path, iso(self._seen_ms), window)
            if part.finishes or any(first < end for first, end in part.offsets.values()):
                planned.append(part)
        done = set(finished)
        open_ms = next((window.start_ms for window in asked if window not in done), asked[-1].end_ms)
        return Plan(parts=planned, finished=finished, open_ms=open_ms)

    def late(self, spark: "SparkSession", parts: Sequence[Part], *, is_open: bool = False) -> list[Part]:
        """Return a part for each finished window to which messages were appended after it was written."""
        from pyspark.sql import functions as sf

        asked = set(self._windows(is_open))
        found = {window: there for window, there in held(parts).items() if window in asked}
        known: list[tuple[int, int, str, int, int]] = []
        since = {each.key: (each.max_offset, each.max_offset) for each in self._queues}
        for window, there in found.items():
            ends = ends_of(there)
            for each in self._queues:
                seen = max(each.min_offset, ends.get(each.key, each.min_offset))
                known.append((*window, *each.key, seen))
                since[each.key] = min(seen, since[each.key][0]), each.max_offset
        if not known:
            return []
        rows = frame_of(spark, self._request, since, ("topic", "queueId", "queueOffset", _TIME))
        if rows is None:
            return []
        schema = "start bigint, stop bigint, topic string, queueId int, seen bigint"
        seen_ends = sf.broadcast(spark.createDataFrame(known, schema))
        time = sf.unix_millis(_TIME)
        late = (
            rows.where((time >= min(found).start_ms) & (time < max(found).end_ms))
            .join(seen_ends, ["topic", "queueId"])
            .where((time >= sf.col("start")) & (time < sf.col("stop")) & (sf.col("queueOffset") >= sf.col("seen")))
            .groupBy("start", "stop", "topic", "queueId")
            .agg(sf.min("queueOffset").alias("first"), sf.max("queueOffset").alias("last"))
        )
        offsets: dict[Window, dict[QueueKey, tuple[int, int]]] = {}
        for start, stop, topic, queue_id, first, last in late.collect():
            offsets.setdefault(Window(start, stop), {})[QueueKey(topic, queue_id)] = (first, last + 1)
        return [
            Part(
                window=window,
                number=found[window][-1].number + 1,
                offsets=spans,
                planned_ms=self._seen_ms,
                after=ends_of(found[window]),
            )
            for window, spans in sorted(offsets.items())
        ]

    def _windows(self, is_open: bool) -> list[Window]:  # noqa: FBT001 - of the callers' keyword
        return self._request.windows(self._now_ms if is_open else None)

    def _part(self, window: Window, there: Sequence[Part]) -> Part:
        if not there:
            self._check_kept(window)
        ends = ends_of(there)
        return Part(
            window=window,
            number=there[-1].number + 1 if there else 0,
            offsets={each.key: self._span(window, each, ends.get(each.key)) for each in self._queues},
            planned_ms=self._seen_ms,
            after=ends,
        )

    def _span(self, window: Window, queue: QueueBounds, held_end: int | None) -> tuple[int, int]:
        snapshot = self._snapshot
        first = snapshot.offset_at(queue.key, window.start_ms) if held_end is None else held_end
        if not queue.min_offset <= first <= queue.max_offset:
            problem = (
                f"offset {first} of {queue.key}, where the parts of {window} end, is not in the queue: it holds "
                f"{queue.min_offset} to {queue.max_offset}"
            )
            fix = "If retention deleted messages since, skip lost ones; else the store was truncated, or is another one"
            if first > queue.max_offset or not self._request.skips_lost:
                raise DataLossError(problem, path=snapshot.path, fix=fix, remedies=[Remedy.SKIP_LOST])
            first = queue.min_offset
        end = max(first, snapshot.end_at(queue.key, window.end_ms))
        # The message after the window's last one may be of the window, too, if it was deleted.
        gone = snapshot.entries.deleted([QueueRange(queue.key, first, min(end + 1, queue.max_offset))])
        if gone and not self._request.skips_lost:
            lacks = f"the archive lacks offset {gone[0].start} of {queue.key}"
            problem, fix = f"messages of {window} may have been deleted: {lacks}", "Leave this window out"
            raise DataLossError(problem, path=snapshot.path, fix=fix, remedies=[Remedy.SKIP_LOST])
        return first, end

    def _check_kept(self, window: Window) -> None:
        segments = self._snapshot.log.segments
        if self._request.skips_lost or not segments or segments[0].base == 0:
            return
        # Deleted messages are older than the first record that is left; a clock that was set back there leaves no sign.
        oldest = self._snapshot.log.store_time_at(segments[0].first)
        if oldest is not None and oldest > window.start_ms:
            problem = f"messages of {window} may have been deleted: the oldest record is of {iso(oldest)}"
            fix = "Begin with a later window"
            raise DataLossError(
                problem, path=segments[0].path, offset=segments[0].base, fix=fix, remedies=[Remedy.SKIP_LOST]
            )


class Waiting:
    """Messages that were appended after a look at a store, which had some queues."""

    def __init__(self, snapshot: Snapshot, topics: tuple[str, ...], queues: Sequence[QueueBounds]) -> None:
        self._snapshot, self._topics = snapshot, Topics(topics)
        self._ends = {each.key: each.max_offset for each in queues}

    def stored_bytes(self) -> int:
        """Return their stored bytes, now."""
        self._snapshot = self._snapshot.newer()
        ((_, queues),) = select([self._snapshot], self._topics, argument="TOPIC")
        new = [
            QueueRange(each.key, max(each.min_offset, self._ends.get(each.key, 0)), each.max_offset) for each in queues
        ]
        return sum(self._snapshot.stored_bytes(each) for each in new if each.start < each.stop)


def check_alignment(window: Window, others: Sequence[Window]) -> None:
    """Refuse a window that overlaps with others, which are in order and do not overlap."""
    at = bisect_left(others, window)
    for other in others[max(0, at - 1) : at + 2]:
        if other != window and other.start_ms < window.end_ms and window.start_ms < other.end_ms:
            problem = f"the target holds the window {other}, which overlaps with {window}"
            raise ConfigError(problem, fix="Use the length of windows and the time zone of the first run")


def frame_of(
    spark: "SparkSession",
    request: Request,
    offsets: Offsets,
    columns: Sequence[str],
    window: Window | None = None,
) -> "DataFrame | None":
    """Return columns of the messages between some offsets, and in a window if one is given; None if there are none."""
    from pyspark.sql import functions as sf

    spans = {key: span for key, span in offsets.items() if span[0] < span[1]}
    if not spans:
        return None
    options = {
        "checkCrc": "true",  # files outlive the store: a damaged body is not to look like a sound one there
        **request.options,
        **offset_options(spans),
        "columns": ",".join([*columns, *([] if _TIME in columns or window is None else [_TIME])]),
    }
    if request.skips_lost:
        options["failOnDataLoss"] = "false"
    rows = spark.read.format("segmentlog").options(**options).load(request.source.path)
    if window is None:
        return rows
    time = sf.col(_TIME)
    start, stop = (sf.timestamp_millis(sf.lit(ms)) for ms in window)
    # The binary search takes store times to rise. A broker's clock that was set back adds messages of other windows.
    found = rows.where((time >= start) & (time < stop))
    return found if _TIME in columns else found.drop(_TIME)


# Options of the reader


def offset_options(spans: Mapping[QueueKey, tuple[int, int]]) -> dict[str, str]:
    """Return the options that read each queue from its first offset to its end, half-open."""
    queues: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, queue_id), (start, end) in spans.items():
        queues.setdefault(topic, []).append(queue_id)
        starts.setdefault(topic, {})[str(queue_id)] = start
        ends.setdefault(topic, {})[str(queue_id)] = end
    return {"assign": json.dumps(queues), "startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}
