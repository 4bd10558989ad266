"""Backfills by the hour of a store whose messages are known, and what readers of directories see of them."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from .store_builder import StoreBuilder, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from segmentlog.jobs.backfill import Request

HOUR_MS: Final = 3_600_000
START_MS: Final = 1_769_817_600_000
"""2026-01-31T00:00:00Z."""
TOPICS: Final = ("orders", "%RETRY%refunds")
COLUMNS: Final = ("topic", "queueId", "queueOffset", "storeTimestamp", "tags", "body")
_QUEUES: Final = 3

Row = tuple[str, int, int, bytes]


def build_hours(path: Path, hours: int, per_hour: int) -> Path:
    """Write messages of two topics into each hour; hour 2 is empty. The first is at its start, the last at its end."""
    with StoreBuilder(path) as builder:
        for hour in range(hours):
            if hour == 2:
                continue
            rows = messages(per_hour, first=hour * per_hour, queues=_QUEUES)
            times = np.linspace(0, HOUR_MS - 1, per_hour).astype(np.int64) + START_MS + hour * HOUR_MS
            topics = np.array(TOPICS)[np.arange(per_hour) % 2].tolist()
            for name, values in (("topic", topics), ("storeTimestamp", times)):
                rows = rows.set_column(rows.schema.get_field_index(name), name, values)
            builder.append(rows)
    return path


def rows_by_hour(store: Path) -> dict[int, list[Row]]:
    """Return the messages of each hour, read without Spark."""
    import segmentlog  # noqa: PLC0415 - drivers import this module before they need it

    found: dict[int, list[Row]] = {}
    with segmentlog.open(store) as opened:
        for topic in TOPICS:
            columns = ("topic", "queueId", "queueOffset", "body", "storeTimestamp")
            for row in opened.scan(topic, columns=columns).to_arrow().to_pylist():
                hour = (round(row["storeTimestamp"].timestamp() * 1000) - START_MS) // HOUR_MS
                found.setdefault(hour, []).append((row["topic"], row["queueId"], row["queueOffset"], row["body"]))
    return {hour: sorted(rows) for hour, rows in found.items()}


def read_hours(target: Path) -> dict[int, list[Row]]:
    """Return the rows of each hour as DuckDB reads all Parquet files below a directory, hidden ones included."""
    import duckdb  # noqa: PLC0415 - drivers do not need it

    if next(target.glob("**/*.parquet"), None) is None:
        return {}
    select = f"SELECT day, hour, topic, queueId, queueOffset, body FROM read_parquet('{target}/**/*.parquet')"
    with duckdb.connect() as connection:
        rows = connection.sql(select).fetchall()
    found: dict[int, list[Row]] = {}
    for day, hour, *row in rows:
        found.setdefault((day.day - 31) % 31 * 24 + int(hour), []).append(tuple(row))
    return {hour: sorted(rows) for hour, rows in found.items()}


def _request(store: str, hours: int) -> "Request":
    from segmentlog.jobs import backfill as job  # noqa: PLC0415 - drivers need it, and others do not
    from segmentlog.query.source import StoreSource  # noqa: PLC0415 - as above

    return job.Request(
        source=StoreSource.of(store, [], None, None, "appended"),
        topics=TOPICS,
        start_ms=START_MS,
        end_ms=START_MS + hours * HOUR_MS,
        length=job.Length.HOUR,
        columns=COLUMNS,
        options={"maxRecordsPerPartition": "40"},
    )


def backfill(spark: "SparkSession", store: str, target: str, hours: int, by: list[str]) -> Counter[str | None]:
    """Run the job over the first hours; return how many of its rows have each status."""
    from segmentlog.jobs import backfill as job  # noqa: PLC0415 - as above

    request = _request(store, hours)
    files = job.Files(target, request, job.Layout(by=tuple(by)))
    return Counter(job.run(spark, request, files).table["status"].to_pylist())


def backfill_without_spark(store: str, target: str, hours: int) -> None:
    """Run the job over the first hours; this process writes the files as Spark's tasks do."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    import segmentlog  # noqa: PLC0415 - as above
    from segmentlog.jobs.backfill import Files, Layout, job  # noqa: PLC0415 - as above

    class Written(Files):
        def _write_files(self, frame: Any, written: str, ready: str) -> int:
            times = {name: segmentlog.Time(ms=ms) for name, ms in zip(("start", "end"), frame, strict=True)}
            tasks, count = Path(written, "_temporary", "0"), 0
            tasks.mkdir(parents=True)
            with segmentlog.open(store) as opened:
                for topic in TOPICS:
                    table = opened.scan(topic, columns=COLUMNS, **times).to_arrow()
                    pq.write_table(table, tasks / f"part-{count}.parquet")
                    count += table.num_rows
            for each in tasks.iterdir():
                each.rename(Path(ready, each.name))
            return count

    request = _request(store, hours)
    job.frame_of = lambda *given: given[-1] if any(first < end for first, end in given[2].values()) else None
    job.run(cast("SparkSession", None), request, Written(target, request, Layout()))
