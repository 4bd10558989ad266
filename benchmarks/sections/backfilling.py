"""Backfill of a day to Parquet, beside Spark's own copy of the same rows from Parquet to Parquet."""

import shutil
from functools import partial
from typing import TYPE_CHECKING

from harness import Case, Found, expect_rows
from page_cache import bring_in
from workload import TOPIC

from segmentlog.jobs.backfill import Files, Layout, Request, run
from segmentlog.query.source import StoreSource

if TYPE_CHECKING:
    from pathlib import Path

    from bench import Bench

COLUMNS = ("topic", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "tags", "keys", "properties", "body")
DAY_MS = 86_400_000
OURS, COPY = "segmentlog: backfill to Parquet", "parquet: copy to Parquet"


def backfills(bench: "Bench") -> Found:
    """Write all rows as Parquet: from the store by the job, and from Parquet by Spark alone."""
    work, target = bench.workload, bench.place("backfilled")

    def ours() -> None:
        start = work.store_time_start // DAY_MS * DAY_MS
        request = Request(
            source=StoreSource.of(work.store, (), None, None, "appended"),
            topics=(TOPIC,),
            start_ms=start,
            end_ms=start + (work.store_time_stop - start + DAY_MS - 1) // DAY_MS * DAY_MS,
            columns=COLUMNS,
        )
        found = run(bench.spark, request, Files(str(target / "job"), request, Layout()))
        expect_rows(found.numbers["messages"], work.rows)

    def copy() -> None:
        bench.spark.read.parquet(str(work.parquet)).select(*COLUMNS).write.parquet(str(target / "copy"))

    cases = [
        Case(
            name=name,
            peer=name.partition(":")[0],
            rows=work.rows,
            action=action,
            before=partial(_prepare, target, path),
        )
        for name, action, path in ((OURS, ours, work.store), (COPY, copy, work.parquet))
    ]
    return Found(results=bench.measure(cases))


def _prepare(target: "Path", read: "Path") -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    bring_in(read)
