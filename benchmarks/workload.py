"""The rows that every peer reads, written once as a RocketMQ store and once as Parquet.

A row is a body of random bytes that begins with the row's number, and five properties: TAGS, KEYS, UNIQ_KEY, region,
trace. Row i goes to queue i mod `QUEUES`; ten rows share a millisecond.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from test_support import support

TOPIC = "Bench"
QUEUES = 8
TAGS = pa.array([f"tag{i}" for i in range(8)])
REGIONS = pa.array(["eu-north", "eu-south", "us-east", "us-west", "asia"])
BATCH_ROWS = 1 << 15
PARQUET_FILES = 8
STORE_TIME_START = 1_700_000_000_000
ROWS_PER_MS = 10
TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Paths of the rows, and their properties."""

    rows: int
    body_bytes: int
    store: Path
    parquet: Path
    store_bytes: int

    @property
    def store_time_stop(self) -> int:
        """One past the last store timestamp, ms."""
        return STORE_TIME_START + (self.rows - 1) // ROWS_PER_MS + 1

    def rows_between(self, start: int, stop: int) -> int:
        """Count the rows stored from ``start`` on and before ``stop``, ms."""
        first, last = ((time - STORE_TIME_START) * ROWS_PER_MS for time in (start, stop))
        return min(last, self.rows) - min(first, self.rows)


def write(folder: Path, *, rows: int, body_bytes: int) -> Workload:
    """Make the rows and write them in both forms below ``folder``."""
    store, parquet = folder / "store", folder / "parquet"
    parquet.mkdir(parents=True)
    some: list[pa.RecordBatch] = []
    with support("store_builder").StoreBuilder(store) as builder:
        for first, batch in batches(rows=rows, body_bytes=body_bytes):
            builder.append(batch)
            some.append(as_columns(batch, first))
            if (first + len(batch)) * PARQUET_FILES // rows > first * PARQUET_FILES // rows:
                path = parquet / f"part-{first:010d}.parquet"
                pq.write_table(pa.Table.from_batches(some), path, compression="none")
                some = []
    return Workload(rows=rows, body_bytes=body_bytes, store=store, parquet=parquet, store_bytes=builder.end)


def batches(*, rows: int, body_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows for the store builder, each batch with the number of its first row."""
    random = np.random.default_rng(4)
    bodies = random.integers(0, 256, (BATCH_ROWS, body_bytes), np.uint8)
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        numbers = np.arange(first, first + count)
        bodies[:count, :8] = numbers.astype(">i8").view(np.uint8).reshape(count, 8)[:, : min(8, body_bytes)]
        text = pc.cast(pa.array(numbers), pa.string())
        trace = pc.utf8_lpad(pc.cast(pa.array(random.integers(0, 1 << 60, count)), pa.string()), 19, "0")
        body = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(body_bytes), count, [None, pa.py_buffer(bodies[:count].tobytes())]
        )
        columns = {
            "topic": pa.repeat(TOPIC, count),
            "queueId": pa.array((numbers % QUEUES).astype(np.int32)),
            "body": body.cast(pa.binary()),
            "tags": TAGS.take(pa.array(numbers % len(TAGS))),
            "keys": pc.binary_join_element_wise("order-", text, ""),
            "uniqKey": pc.utf8_lpad(text, 32, "0"),
            "properties": _maps({"region": REGIONS.take(pa.array(numbers % len(REGIONS))), "trace": trace}),
            "bornTimestamp": pa.array(STORE_TIME_START + numbers // ROWS_PER_MS - 5),
            "storeTimestamp": pa.array(STORE_TIME_START + numbers // ROWS_PER_MS),
        }
        yield first, pa.record_batch(columns)


def as_columns(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return the rows of the segmentlog source with properties: its default columns and the full map."""
    own = batch["properties"].items
    properties = {"TAGS": batch["tags"], "KEYS": batch["keys"], "UNIQ_KEY": batch["uniqKey"]}
    columns = {
        "topic": batch["topic"],
        "queueId": batch["queueId"],
        "queueOffset": pa.array(np.arange(first, first + len(batch)) // QUEUES),
        "body": batch["body"],
        "tags": batch["tags"],
        "keys": batch["keys"],
        "uniqKey": batch["uniqKey"],
        "bornTimestamp": pc.multiply(batch["bornTimestamp"], 1000).cast(TIMESTAMP),
        "storeTimestamp": pc.multiply(batch["storeTimestamp"], 1000).cast(TIMESTAMP),
        "properties": _maps({**properties, "region": own[0::2], "trace": own[1::2]}),
    }
    return pa.record_batch(columns)


def _maps(columns: Mapping[str, pa.Array]) -> pa.MapArray:
    """Return a map for each row, with these names in turn."""
    rows, width = len(next(iter(columns.values()))), len(columns)
    offsets = pa.array(np.arange(0, width * rows + 1, width, dtype=np.int32))
    names = pa.array(list(columns)).take(pa.array(np.arange(width * rows) % width))
    interleaved = pa.array(np.arange(width * rows).reshape(width, rows).T.ravel())
    return pa.MapArray.from_arrays(offsets, names, pa.concat_arrays(columns.values()).take(interleaved))
