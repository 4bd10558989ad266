"""The data source of the transport ceiling. Workers import it, so it needs Spark and Arrow only."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class PrebuiltSource(DataSource):
    """Options: ``batch`` (an Arrow file), ``rows`` in all, ``tasks``."""

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return "benchmark_prebuilt"

    def reader(self, schema: StructType) -> "PrebuiltReader":
        """Make the reader; the schema is the caller's."""
        del schema
        return PrebuiltReader(self.options["batch"], int(self.options["rows"]), int(self.options["tasks"]))


@dataclass(frozen=True)
class RowCount(InputPartition):
    """One task: how many rows to hand over."""

    rows: int


class PrebuiltReader(DataSourceReader):
    """Yields the batch until the task's rows are there."""

    def __init__(self, path: str, rows: int, tasks: int) -> None:
        self.path, self.rows, self.tasks = path, rows, tasks

    def partitions(self) -> list[InputPartition]:
        """Share the rows among the tasks."""
        return [RowCount(self.rows // self.tasks + (task < self.rows % self.tasks)) for task in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Hand the batch over, the last time cut to size."""
        assert isinstance(partition, RowCount)
        batch = pa.ipc.open_file(pa.BufferReader(Path(self.path).read_bytes())).get_batch(0)
        left = partition.rows
        while left > 0:
            yield batch.slice(0, left) if left < len(batch) else batch
            left -= len(batch)
