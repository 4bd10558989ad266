"""The data source of the ceilings: it hands over a prebuilt batch, and drops what it is given, or only keeps the bytes.

No Python source can be faster on this machine with this Spark, whatever it reads or writes. Workers import this module,
so it needs Spark and Arrow only.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from bench import Bench
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamReader

ROW = "rows"
BATCH_BYTES = 8 << 20
TASK_BYTES = 128 << 20
COLUMNS = {
    "topic": "string",
    "queueId": "int",
    "queueOffset": "long",
    "body": "binary",
    "tags": "string",
    "keys": "string",
    "uniqKey": "string",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
}
"""The segmentlog source's default columns; the map of properties comes on demand."""
SCHEMAS = {
    "all columns, properties": {**COLUMNS, "properties": "map<string,string>"},
    "all columns": COLUMNS,
    "body only": {"body": "binary"},
}


def ddl(columns: dict[str, str]) -> str:
    """Return the columns as Spark's schema text."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def register_prebuilt(spark: "SparkSession") -> None:
    """Make the source known to a session, in Python workers of its own.

    The segmentlog source changes what it finds in a worker: garbage collection, acknowledgements, the allocator. The
    ceiling is the transport as PySpark comes. Spark keeps workers apart by their environment.
    """
    environment = spark.sparkContext.environment
    environment["SEGMENTLOG_BENCHMARK_WORKERS"] = PrebuiltSource.name()
    try:
        spark.dataSource.register(PrebuiltSource)
    finally:
        del environment["SEGMENTLOG_BENCHMARK_WORKERS"]


def prebuilt(bench: "Bench", name: str, source: "DataStreamReader", **options: object) -> "DataStreamReader":
    """Let a reader, of a batch or a stream, read all rows with one of the schemas, from one prebuilt batch."""
    from workload import as_columns, batches  # noqa: PLC0415 - a worker does not have what it needs

    register_prebuilt(bench.spark)
    work, path = bench.workload, bench.folder / f"prebuilt-{list(SCHEMAS).index(name)}.arrow"
    if not path.exists():
        first, sample = next(batches(rows=work.rows, body_bytes=work.body_bytes))
        chosen = as_columns(sample, first).select(list(SCHEMAS[name]))
        batch = chosen.slice(0, max(1, BATCH_BYTES * len(chosen) // chosen.nbytes))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
    given = {"batch": str(path), ROW: work.rows, "tasks": max(1, -(-work.store_bytes // TASK_BYTES)), **options}
    return source.format(PrebuiltSource.name()).schema(ddl(SCHEMAS[name])).options(**given)


class PrebuiltSource(DataSource):
    """Options: ``batch`` (an Arrow file), ``tasks``, ``rows`` in all; for a stream also ``counter``.

    A write drops its rows; with ``folder``, a directory, it leaves the bytes of their bodies there, synced.
    ``counter`` is a file whose size is how many rows there are, so that others can append some.
    """

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return "benchmark_prebuilt"

    def reader(self, schema: StructType) -> "PrebuiltReader":
        """Make the reader; the schema is the caller's."""
        del schema
        return PrebuiltReader(self.options)

    def streamReader(self, schema: StructType) -> "PrebuiltStreamReader":  # noqa: N802 - Spark's name
        """Make the stream's reader."""
        del schema
        return PrebuiltStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's signature
        """Make the writer: one that drops its rows, or with ``folder`` one that leaves their bodies there."""
        del schema, overwrite
        return SyncingWriter(self.options["folder"]) if "folder" in self.options else DroppingWriter()


@dataclass(frozen=True)
class RowCount(InputPartition, WriterCommitMessage):
    """Number of rows that a task hands over, or received."""

    rows: int


class Prebuilt:
    """What a batch and a stream share."""

    def __init__(self, options: dict[str, str]) -> None:
        self.path, self.rows, self.tasks = options["batch"], int(options[ROW]), int(options["tasks"])
        self.counter = options.get("counter")

    def shared(self, rows: int) -> list[InputPartition]:
        """Share rows among tasks that each have some."""
        return [RowCount(rows // self.tasks + (task < rows % self.tasks)) for task in range(min(self.tasks, rows))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Hand the batch over until the task's rows are there, the last time cut to size."""
        assert isinstance(partition, RowCount)
        batch = pa.ipc.open_file(pa.BufferReader(Path(self.path).read_bytes())).get_batch(0)
        for left in range(partition.rows, 0, -len(batch)):
            yield batch.slice(0, left) if left < len(batch) else batch


class PrebuiltReader(Prebuilt, DataSourceReader):
    """Yields the batch until the task's rows are there."""

    def partitions(self) -> Sequence[InputPartition]:
        """Share the rows among the tasks."""
        return self.shared(self.rows)


class PrebuiltStreamReader(Prebuilt, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same as a stream; an offset is how many rows were before."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Begin with the first row."""
        return {ROW: 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Nothing is added while a drain runs."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Read everything available."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Say how many rows there are."""
        del start, limit
        return {ROW: self.rows if self.counter is None else os.stat(self.counter).st_size}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Share the rows among the tasks."""
        return self.shared(end[ROW] - start[ROW])


class DroppingWriter(DataSourceArrowWriter):
    """Takes batches, and does nothing with them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Count the rows."""
        return RowCount(sum(len(batch) for batch in iterator))


class SyncingWriter(DataSourceArrowWriter):
    """Writes each body once, as it comes, and syncs once a task: the least that a sink does whose rows are durable."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Copy the memory of each batch's bodies into one file."""
        rows = 0
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False, buffering=0) as file:
            for batch in iterator:
                bodies = batch.column("body")
                offsets = np.frombuffer(bodies.buffers()[1], np.int32)[bodies.offset :]
                left = memoryview(bodies.buffers()[2])[offsets[0] : offsets[len(bodies)]]
                while left:
                    left = left[file.write(left) :]
                rows += len(batch)
            os.fdatasync(file.fileno())
        return RowCount(rows)
