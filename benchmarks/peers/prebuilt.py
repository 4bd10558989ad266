"""The data source of the ceilings: it hands over a prebuilt batch, and drops what it is given, or only keeps the bytes.

Workers import it, so it needs Spark and Arrow only.
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
    from pyspark.sql import SparkSession

ROW = "rows"


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
        return PrebuiltReader(self.options["batch"], int(self.options[ROW]), int(self.options["tasks"]))

    def streamReader(self, schema: StructType) -> "PrebuiltStreamReader":  # noqa: N802 - Spark's name
        """Make the stream's reader."""
        del schema
        given = self.options
        return PrebuiltStreamReader(given["batch"], int(given.get(ROW, 0)), int(given["tasks"]), given.get("counter"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's signature
        """Make the writer: one that drops its rows, or with ``folder`` one that leaves their bodies there."""
        del schema, overwrite
        return SyncingWriter(self.options["folder"]) if "folder" in self.options else DroppingWriter()


@dataclass(frozen=True)
class RowCount(InputPartition):
    """One task: how many rows to hand over."""

    rows: int


@dataclass(frozen=True)
class Dropped(WriterCommitMessage):
    """Number of rows that a task received."""

    rows: int


class PrebuiltReader(DataSourceReader):
    """Yields the batch until the task's rows are there."""

    def __init__(self, path: str, rows: int, tasks: int) -> None:
        self.path, self.rows, self.tasks = path, rows, tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Share the rows among the tasks."""
        return shared(self.rows, self.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Hand the batch over, the last time cut to size."""
        return handed_over(self.path, partition)


class PrebuiltStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same as a stream; an offset is how many rows were before."""

    def __init__(self, path: str, rows: int, tasks: int, counter: str | None) -> None:
        self.path, self.rows, self.tasks, self.counter = path, rows, tasks, counter

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
        return shared(end[ROW] - start[ROW], self.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Hand the batch over, the last time cut to size."""
        return handed_over(self.path, partition)


class DroppingWriter(DataSourceArrowWriter):
    """Takes batches, and does nothing with them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Count the rows."""
        return Dropped(sum(len(batch) for batch in iterator))


class SyncingWriter(DataSourceArrowWriter):
    """Writes each body once, as it comes, and syncs once a task: the least that a sink does whose rows are durable."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Copy the memory of each batch's bodies into one file."""
        descriptor, _ = tempfile.mkstemp(dir=self.folder)
        rows = 0
        try:
            for batch in iterator:
                bodies = batch.column("body")
                offsets = np.frombuffer(bodies.buffers()[1], np.int32)[bodies.offset :]
                left = memoryview(bodies.buffers()[2])[offsets[0] : offsets[len(bodies)]]
                while left:
                    left = left[os.write(descriptor, left) :]
                rows += len(batch)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        return Dropped(rows)


def shared(rows: int, tasks: int) -> list[InputPartition]:
    """Share rows among tasks that each have some."""
    return [RowCount(rows // tasks + (task < rows % tasks)) for task in range(min(tasks, rows))]


def handed_over(path: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Hand a batch over until a task's rows are there, the last time cut to size."""
    assert isinstance(partition, RowCount)
    batch = pa.ipc.open_file(pa.BufferReader(Path(path).read_bytes())).get_batch(0)
    left = partition.rows
    while left > 0:
        yield batch.slice(0, left) if left < len(batch) else batch
        left -= len(batch)
