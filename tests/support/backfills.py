"""Backfills by the hour of a store whose messages are known, and what readers of directories see of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from .store_builder import StoreBuilder, messages

HOUR_MS: Final = 3_600_000
START_MS: Final = 1_769_817_600_000
"""2026-01-31T00:00:00Z."""
TOPICS: Final = ("orders", "%RETRY%refunds")
COLUMNS: Final = ("topic", "queueId", "queueOffset", "storeTimestamp", "tags", "body")
_QUEUES: Final = 3

Row = tuple[Any, ...]
"""Topic, queue, queue offset and body."""
Hours = dict[int, list[Row]]
"""Messages by hour since 1970."""


def build_hours(
    path: Path, hours: int, per_hour: int, rounds: int = 1, body: Callable[[int], bytes] | None = None
) -> Path:
    """Write messages of two topics into each hour; hour 2 is empty. The first is at its start, the last at its end.

    Further rounds are appended after all hours, and have their store times again: they are late. The same arguments
    make the same log.
    """
    with StoreBuilder(path) as builder:
        for number in range(rounds * hours):
            hour = number % hours
            if hour == 2:
                continue
            rows = messages(per_hour, first=number * per_hour, queues=_QUEUES)
            times = np.linspace(0, HOUR_MS - 1, per_hour).astype(np.int64) + START_MS + hour * HOUR_MS
            topics = np.array(TOPICS)[np.arange(per_hour) % 2].tolist()
            changed = {"topic": topics, "storeTimestamp": times}
            if body is not None:
                changed["body"] = pa.array([body(number * per_hour + each) for each in range(per_hour)], pa.binary())
            for name, values in changed.items():
                rows = rows.set_column(rows.schema.get_field_index(name), name, values)
            builder.append(rows)
    return path


def rows_by_hour(store: Path) -> Hours:
    import segmentlog  # noqa: PLC0415 - drivers import this module before they need it

    found: Hours = {}
    with segmentlog.open(store) as opened:
        for topic in set(TOPICS).intersection(opened.topics().to_arrow()["topic"].to_pylist()):
            columns = ("topic", "queueId", "queueOffset", "body", "storeTimestamp")
            for row in opened.scan(topic, columns=columns).to_arrow().to_pylist():
                hour = round(row["storeTimestamp"].timestamp() * 1000) // HOUR_MS
                found.setdefault(hour, []).append((row["topic"], row["queueId"], row["queueOffset"], row["body"]))
    return {hour: sorted(rows) for hour, rows in found.items()}


def read_hours(target: Path, body: str = "body") -> Hours:
    """Return the rows of each hour as DuckDB reads all Parquet files below a directory, hidden ones included."""
    import duckdb  # noqa: PLC0415 - drivers do not need it

    if next(target.glob("**/*.parquet"), None) is None:
        return {}
    hour = "epoch(CAST(day AS TIMESTAMP)) // 3600 + CAST(hour AS BIGINT)"
    select = f"SELECT {hour}, topic, queueId, queueOffset, {body} FROM read_parquet('{target}/**/*.parquet')"
    with duckdb.connect() as connection:
        rows = connection.sql(select).fetchall()
    found: Hours = {}
    for at, *row in rows:
        found.setdefault(int(at), []).append(tuple(row))
    return {at: sorted(rows) for at, rows in found.items()}
