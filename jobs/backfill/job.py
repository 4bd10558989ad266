"""Job ``backfill``: what a target lacks is planned, read with Spark, and written part by part.

::

    target.parts ──► Planner ──► parts ──► frame_of ──► target.write ──► Report
         ▲                                                  │
         └── again after each pause, if the job follows ◄───┘
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..report import Report
from .parts import Part, Target, Window, Written, held
from .planning import Planner, Request, frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = pa.schema(
    [
        ("start", pa.timestamp("ms", "UTC")),
        ("end", pa.timestamp("ms", "UTC")),
        ("part", pa.int32()),
        ("status", pa.string()),
        ("messages", pa.int64()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("seconds", pa.float64()),
    ]
)
"""Columns of a report: a row per part that was written, and per window that was finished before."""

_log = logging.getLogger(__name__)


def run(
    spark: "SparkSession",
    request: Request,
    target: Target,
    *,
    catches_up: bool = False,
    every_s: float | None = None,
    stop: threading.Event | None = None,
) -> Report:
    """Write the messages of a period into files or a table, each message once.

    A job that was killed goes on when it is run again; a finished window is not written again.

    Parameters
    ----------
    spark : SparkSession
        With the format registered.
    request : Request
        Store, topics, period and columns.
    target : Target
        `Files`, or a table of a lake.
    catches_up : bool
        Add messages of finished windows that were appended after these were written.
    every_s : float, optional
        Go on, and write what is new so often; ``request.end_ms`` is not used. None to stop at the end of the period.
    stop : threading.Event, optional
        Ends the job after the part that it writes.

    Returns
    -------
    Report

    Raises
    ------
    ConfigError
        If the period is not whole windows, or not over, or if the target holds something else.
    DataLossError
        If messages of the period were deleted.
    StoreInUseError
        If another job writes into the target.
    """
    stopped = threading.Event() if stop is None else stop
    work = _Backfill(spark, request, target, stopped)
    target.open()
    try:
        work.write_missing(is_open=every_s is not None)
        if catches_up:
            work.write(Planner(request, _now_ms()).late(spark, target.parts()))
        while every_s is not None and not stopped.wait(every_s):
            work.write_missing(is_open=True)
    finally:
        target.close()
    return work.report()


class _Backfill:
    """Parts written so far, and what is needed to write more."""

    def __init__(self, spark: "SparkSession", request: Request, target: Target, stop: threading.Event) -> None:
        self._spark, self._request, self._target, self._stop = spark, request, target, stop
        self._rows: dict[tuple[Window, int], tuple[str, Written | None, float | None]] = {}

    def write_missing(self, *, is_open: bool) -> None:
        """Plan what the target lacks, and write it."""
        parts = self._target.parts()
        plan = Planner(self._request, _now_ms()).missing(parts, is_open=is_open)
        there = held(parts)
        for window in plan.finished:
            self._rows.setdefault((window, there[window][-1].number), ("finished before", None, None))
        self.write(plan.parts)

    def write(self, parts: Sequence[Part]) -> None:
        """Write parts, until the job is stopped."""
        for number, part in enumerate(parts):
            if self._stop.is_set():
                return
            _log.info("window %s", part.window, extra={"done": number, "of": len(parts)})
            started = time.monotonic()
            frame = frame_of(self._spark, self._request, part.offsets, self._request.columns, part.window)
            written = self._target.write(part, frame)
            seconds = round(time.monotonic() - started, 3)
            self._rows[part.window, part.number] = ("written", written, seconds)
            text = f"window {part.window}: {written.messages} messages"
            _log.info("%s", text, extra={"done": number + 1, "of": len(parts)})

    def report(self) -> Report:
        """Return a row per part that was written, and per window that was finished before."""
        rows = [
            (*window, part, status, *(written or (None, None, None)), seconds)
            for (window, part), (status, written, seconds) in sorted(self._rows.items())
        ]
        table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
        sizes = [written for _, written, _ in self._rows.values() if written is not None]
        totals = {name: sum(getattr(each, name) for each in sizes) for name in Written._fields}
        return Report(numbers={"parts": len(sizes), **totals}, table=table)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
