"""Job ``backfill``: what a target lacks is planned, read with Spark, and written part by part.

::

    target.parts ──► Planner ──► parts ──► frame_of ──► target.write ──► Report
         ▲                                                  │
         └── again after each pause, if the job follows ◄───┘
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from segmentlog.query.body_columns import BODY_ERROR, BodyFormat
from segmentlog.query.extras import check_tasks_run_functions
from segmentlog.query.parts import Part, Window, Written, held
from segmentlog.query.rows import table_of
from segmentlog.store import ConfigError

from ..report import Report
from .planning import Planner, Request, Target, Waiting, frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

# Bodies

_BODY: Final = "body"
DEAD_LETTER_COLUMNS: Final = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "body")
"""Columns of dead letters, before ``bodyError``."""
SCHEMA: Final = pa.schema(
    [
        ("start", pa.timestamp("ms", "UTC")),
        ("end", pa.timestamp("ms", "UTC")),
        ("part", pa.int32()),
        ("status", pa.string()),
        ("messages", pa.int64()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("rejected", pa.int64()),
        ("seconds", pa.float64()),
    ]
)
"""Columns of a report: a row per part that was written, and per window that was finished before.

``rejected`` is left out unless bodies are parsed.
"""
_LOOK_S: Final = 1.0
"""Pause between two looks at how many bytes wait."""
_FOLLOWED_ROWS: Final = 1_000
"""Rows of a job that follows: it may run for years."""


@dataclass(frozen=True, kw_only=True)
class Bodies:
    """Format of the bodies as columns, and the target of messages whose body does not parse.

    ::

        messages ── BodyFormat.widen, in tasks ──┬─ bodyError is null ──► target         columns, id, total
                                                 └─ else ───────────────► dead letters   place, bodyError, body

    Dead letters follow the target: a part that the target has, and the dead letters lack, is read again. So a kill
    between the two loses none.

    Attributes
    ----------
    format : BodyFormat
    dead_letters : Target
    """

    format: BodyFormat
    dead_letters: Target

    def frame_of(self, spark: "SparkSession", request: Request, part: Part) -> "tuple[DataFrame | None, Observation]":
        """Return the messages of a part that parse; the observation has the number of the others as ``rejected``."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        count = Observation()
        read = [*request.columns, *([] if _BODY in request.columns else [_BODY])]
        rows = frame_of(spark, request, part.offsets, read, part.window)
        if rows is None:
            return None, count
        found = _widened(rows, self.format).observe(count, sf.count(BODY_ERROR.name).alias("rejected"))
        dropped = {BODY_ERROR.name, _BODY} - set(request.columns)
        return found.where(sf.isnull(BODY_ERROR.name)).drop(*dropped), count

    def bury(self, spark: "SparkSession", request: Request, part: Part) -> None:
        """Write the dead letters of a part."""
        from pyspark.sql import functions as sf

        rows = frame_of(spark, request, part.offsets, DEAD_LETTER_COLUMNS, part.window)
        if rows is not None:
            found = _widened(rows.select(*DEAD_LETTER_COLUMNS), self.format)
            rows = found.where(sf.isnotnull(BODY_ERROR.name)).select(*DEAD_LETTER_COLUMNS, BODY_ERROR.name)
        self.add(part, rows)

    def add(self, part: Part, rows: "DataFrame | None") -> None:
        """Write the dead letters of a part, unless they are there: a table that was rolled back gets parts again."""
        former = [each for each in self.dead_letters.parts(*part.window) if each.number == part.number]
        if not former:
            self.dead_letters.write(part, rows)
        elif former[0].offsets != part.offsets:
            problem = f"the dead letters have part {part.number} of {part.window} with other offsets than the target"
            raise ConfigError(problem, fix="Delete the directory of this window there, and start the job again")

    def missing(self, target: Target) -> list[Part]:
        """Return the parts of a target that the dead letters lack."""
        there = {(part.window, part.number) for part in self.dead_letters.parts()}
        lacking = {part.window for part in target.recorded() if (part.window, part.number) not in there}
        if not lacking:
            return []
        # A table has to prove what it holds: it is asked about these windows alone.
        found = target.parts(min(lacking).start_ms, max(lacking).end_ms)
        return [part for part in found if (part.window, part.number) not in there]


def _widened(rows: "DataFrame", bodies: BodyFormat) -> "DataFrame":
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    def widen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(bodies.widen, batches)

    check_tasks_run_functions()
    added = from_arrow_schema(pa.schema([*bodies.schema, BODY_ERROR]))
    # A name that is there twice is an error here, and not in each task.
    bodies.widened(pa.schema([(name, pa.null()) for name in rows.columns]))
    return rows.mapInArrow(widen, StructType([*rows.schema.fields, *added.fields]))


# The job


_log = logging.getLogger(__name__)


def run(
    spark: "SparkSession | Callable[[], SparkSession]",
    request: Request,
    target: Target,
    *,
    bodies: Bodies | None = None,
    catches_up: bool = False,
    every_s: float | None = None,
    commit_bytes: int | None = None,
    stop: threading.Event | None = None,
) -> Report:
    """Write the messages of a period into files or a table, each message once.

    A job that was killed goes on when it is run again; a finished window is not written again.

    Parameters
    ----------
    spark : SparkSession or callable
        With the format registered; or a function that starts it, called once the target was checked.
    request : Request
        Store, topics, period and columns.
    target : Target
        `Files`, or a table of a lake.
    bodies : Bodies, optional
        Format by which bodies become columns. Messages that do not parse are dead letters, and no error.
    catches_up : bool
        Add messages of finished windows that were appended after these were written.
    every_s, commit_bytes : float and int, optional
        Follow the store, without an end: write what is new at this interval, or once so many stored bytes wait.
    stop : threading.Event, optional
        Ends the job after the part that it writes.

    Returns
    -------
    Report
        Its numbers are of all parts; a job that follows has the last 1,000 rows.

    Raises
    ------
    ConfigError
        If the period is not whole windows, or not over, or if the target holds something else.
    DataLossError
        If messages of the period were deleted.
    StoreInUseError
        If another job writes into the target.
    """
    follows, rows_max = (False, None) if every_s is None else (True, _FOLLOWED_ROWS)
    work = _Backfill(spark, request, target, bodies, stop=stop or threading.Event(), rows_max=rows_max)
    with ExitStack() as held_targets:
        for each in [target] if bodies is None else [target, bodies.dead_letters]:
            each.open()
            held_targets.callback(each.close)
        work.bury_missing()
        work.write_missing(is_open=follows)
        if catches_up:
            parts = target.parts(request.start_ms, None if follows else request.end_ms)
            work.write(Planner(request, _now_ms()).late(work.spark, parts, is_open=follows))
        while every_s is not None and work.waits(every_s, commit_bytes):
            work.write_missing(is_open=True)
    return work.report()


class _Row(NamedTuple):
    status: str
    written: Written | None = None
    rejected: int | None = None
    seconds: float | None = None


class _Backfill:
    """Parts written so far, and what is needed to write more."""

    def __init__(
        self,
        spark: "SparkSession | Callable[[], SparkSession]",
        request: Request,
        target: Target,
        bodies: Bodies | None,
        *,
        stop: threading.Event,
        rows_max: int | None,
    ) -> None:
        self._start, self._request, self._target, self._bodies, self._stop = spark, request, target, bodies, stop
        self._rows: dict[tuple[Window, int], _Row] = {}
        self._rows_max = rows_max
        self._waiting: Waiting | None = None
        names = ["parts", *Written._fields, *([] if bodies is None else ["rejected"])]
        self._numbers = dict.fromkeys(names, 0)

    @cached_property
    def spark(self) -> "SparkSession":
        return self._start() if callable(self._start) else self._start

    def write_missing(self, *, is_open: bool) -> None:
        """Plan what the target lacks, and write it. With ``is_open`` the next call leaves out finished windows."""
        parts = self._target.parts(self._request.start_ms, None if is_open else self._request.end_ms)
        planner = Planner(self._request, _now_ms())
        plan = planner.missing(parts, is_open=is_open)
        self._waiting = planner.waiting()  # what comes while the plan is written waits, too
        there = held(parts)
        for window in plan.finished:
            if (key := (window, there[window][-1].number)) not in self._rows:
                self._add(key, _Row("finished before"))
        self.write(plan.parts)
        if is_open:
            self._request = replace(self._request, start_ms=plan.open_ms)

    def waits(self, every_s: float, commit_bytes: int | None) -> bool:
        """Wait until it is time to write again; False if the job was stopped."""
        if commit_bytes is None:
            return not self._stop.wait(every_s)
        assert self._waiting is not None
        until = time.monotonic() + every_s
        while (left := until - time.monotonic()) > 0 and self._waiting.stored_bytes() < commit_bytes:
            if self._stop.wait(min(left, _LOOK_S)):
                return False
        return not self._stop.is_set()

    def _add(self, key: tuple[Window, int], row: _Row) -> None:
        self._rows[key] = row
        if self._rows_max is not None and len(self._rows) > self._rows_max:
            del self._rows[next(iter(self._rows))]

    def write(self, parts: Sequence[Part]) -> None:
        """Write parts, until the job is stopped."""
        for number, part in enumerate(parts):
            if self._stop.is_set():
                return
            _log.info("window %s", part.window, extra={"done": number, "of": len(parts)})
            started = time.monotonic()
            written, rejected = self._write(part)
            seconds = round(time.monotonic() - started, 3)
            self._add((part.window, part.number), _Row("written", written, rejected, seconds))
            added = {"parts": 1, **written._asdict(), **({} if rejected is None else {"rejected": rejected})}
            for name, count in added.items():
                self._numbers[name] += count
            text = f"window {part.window}: {written.messages} messages"
            _log.info("%s", text, extra={"done": number + 1, "of": len(parts)})

    def _write(self, part: Part) -> tuple[Written, int | None]:
        """Write a part and its dead letters; return its size, and their number."""
        if self._bodies is None:
            frame = frame_of(self.spark, self._request, part.offsets, self._request.columns, part.window)
            return self._target.write(part, frame), None
        frame, count = self._bodies.frame_of(self.spark, self._request, part)
        written = self._target.write(part, frame)
        rejected = 0 if frame is None else int(count.get["rejected"])
        if rejected:
            self._bodies.bury(self.spark, self._request, part)
        else:
            self._bodies.add(part, None)
        return written, rejected

    def bury_missing(self) -> None:
        """Write the dead letters of parts after which an earlier run was killed."""
        if self._bodies is not None:
            for part in self._bodies.missing(self._target):
                self._bodies.bury(self.spark, self._request, part)

    def report(self) -> Report:
        """Return a row per part that was written, and per window that was finished before."""
        rows = [
            (*window, part, row.status, *(row.written or (None, None, None)), row.rejected, row.seconds)
            for (window, part), row in sorted(self._rows.items())
        ]
        table = table_of(rows, SCHEMA)
        if self._bodies is None:
            table = table.drop_columns(["rejected"])
        return Report(numbers=dict(self._numbers), table=table)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
