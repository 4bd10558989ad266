"""The rows that every peer reads, written once as a RocketMQ store and once as Parquet.

A row is a body of random bytes that begins with the row's number, and five properties: TAGS, KEYS, UNIQ_KEY, region,
trace. Row i goes to queue i mod ``queues``; ten rows share a millisecond.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from test_support import support

TOPIC = "Bench"
TAGS = pa.array([f"tag{i}" for i in range(8)])
REGIONS = pa.array(["eu-north", "eu-south", "us-east", "us-west", "asia"])
BATCH_ROWS = 1 << 15
PARQUET_FILES = 8
STORE_TIME_START = 1_700_000_000_000
ROWS_PER_MS = 10

TIMESTAMP = pa.timestamp("us", tz="UTC")
MAP = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Paths of the rows, and their properties."""

    rows: int
    queues: int
    body_bytes: int
    store: Path
    parquet: Path
    store_bytes: int

    @property
    def store_time_start(self) -> int:
        """The first store timestamp, ms."""
        return STORE_TIME_START

    @property
    def store_time_stop(self) -> int:
        """One past the last store timestamp, ms."""
        return STORE_TIME_START + (self.rows - 1) // ROWS_PER_MS + 1

    def rows_between(self, start: int, stop: int) -> int:
        """Count the rows stored from ``start`` on and before ``stop``, ms."""
        first, last = ((time - STORE_TIME_START) * ROWS_PER_MS for time in (start, stop))
        return min(last, self.rows) - min(first, self.rows)


def write(folder: Path, *, rows: int, queues: int, body_bytes: int) -> Workload:
    """Make the rows and write them in both forms below ``folder``."""
    store, parquet = folder / "store", folder / "parquet"
    parquet.mkdir(parents=True)
    per_file = -(-rows // PARQUET_FILES)
    writer: pq.ParquetWriter | None = None
    with support("store_builder").StoreBuilder(store) as builder:
        for first, batch in batches(rows=rows, queues=queues, body_bytes=body_bytes):
            builder.append(batch)
            table = as_columns(batch, first, queues)
            if writer is None or first // per_file != (first - BATCH_ROWS) // per_file:
                if writer is not None:
                    writer.close()
                name = parquet / f"part-{first // per_file:05d}.parquet"
                writer = pq.ParquetWriter(name, table.schema, compression="none")
            writer.write_batch(table)
    if writer is not None:
        writer.close()
    return Workload(
        rows=rows, queues=queues, body_bytes=body_bytes, store=store, parquet=parquet, store_bytes=builder.end
    )


def batches(*, rows: int, queues: int, body_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows for the store builder, each batch with the number of its first row."""
    random = np.random.default_rng(4)
    bodies = random.integers(0, 256, (BATCH_ROWS, body_bytes), np.uint8)
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        numbers = np.arange(first, first + count)
        bodies[:count, :8] = numbers.astype(">i8").view(np.uint8).reshape(count, 8)[:, : min(8, body_bytes)]
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(body_bytes)
        text = pc.cast(pa.array(numbers), pa.string())
        trace = pc.utf8_lpad(pc.cast(pa.array(random.integers(0, 1 << 60, count)), pa.string()), 19, "0")
        pairs = pa.array(np.arange(0, 2 * count + 1, 2, dtype=np.int32))
        values = pa.concat_arrays([REGIONS.take(pa.array(numbers % len(REGIONS))), trace])
        interleaved = np.arange(2 * count).reshape(2, count).T.ravel()
        body = pa.BinaryArray.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(bodies[:count].tobytes())]
        )
        yield (
            first,
            pa.record_batch(
                {
                    "topic": pa.array([TOPIC]).take(pa.array(np.zeros(count, np.int64))),
                    "queueId": pa.array((numbers % queues).astype(np.int32)),
                    "body": body,
                    "tags": TAGS.take(pa.array(numbers % len(TAGS))),
                    "keys": pc.binary_join_element_wise("order-", text, ""),
                    "uniqKey": pc.utf8_lpad(text, 32, "0"),
                    "properties": pa.MapArray.from_arrays(
                        pairs,
                        pa.array(["region", "trace"]).take(pa.array(np.arange(2 * count) % 2)),
                        values.take(pa.array(interleaved)),
                    ),
                    "bornTimestamp": pa.array(STORE_TIME_START + numbers // ROWS_PER_MS - 5),
                    "storeTimestamp": pa.array(STORE_TIME_START + numbers // ROWS_PER_MS),
                }
            ),
        )


def as_columns(batch: pa.RecordBatch, first: int, queues: int) -> pa.RecordBatch:
    """Return the rows of the segmentlog source with properties: its default columns and the full map."""
    count = len(batch)
    numbers = np.arange(first, first + count)
    own = batch["properties"]
    names = pa.array(["TAGS", "KEYS", "UNIQ_KEY", "region", "trace"]).take(pa.array(np.arange(5 * count) % 5))
    values = pa.concat_arrays([batch["tags"], batch["keys"], batch["uniqKey"], own.items[0::2], own.items[1::2]])
    interleaved = np.arange(5 * count).reshape(5, count).T.ravel()
    offsets = pa.array(np.arange(0, 5 * count + 1, 5, dtype=np.int32))
    return pa.record_batch(
        {
            "topic": batch["topic"],
            "queueId": batch["queueId"],
            "queueOffset": pa.array(numbers // queues),
            "body": batch["body"],
            "tags": batch["tags"],
            "keys": batch["keys"],
            "uniqKey": batch["uniqKey"],
            "bornTimestamp": pa.array(batch["bornTimestamp"].to_numpy() * 1000).cast(TIMESTAMP),
            "storeTimestamp": pa.array(batch["storeTimestamp"].to_numpy() * 1000).cast(TIMESTAMP),
            "properties": pa.MapArray.from_arrays(offsets, names, values.take(pa.array(interleaved))),
        }
    )
