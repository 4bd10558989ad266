"""The batch reader: plans on the driver, yields Arrow batches in the tasks.

::

    Spark's planning process   reader(schema) ── partitions ──► [StorePartition, …]
    Spark's worker, per task                     read(StorePartition) ──► record batches

The reader takes no filters: Spark checks them on every row. Spark 4.2 and 4.3 keep one plan of a Python source for each
``load``, view or table reference, and a pushed filter replaces it. Later queries then return wrong rows
(``docs/adr/0009``). The reader is pickled for the workers before ``partitions`` runs. So `read` uses its projection and
its partition, never what planning found.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..errors import in_spark_words
from ..options.read_options import ReadOptions
from ..setup.worker_tuning import SentToWorkers
from .planning import plan_partitions
from .schema import check_schema, project
from .task import read_partition, scan_spec


class SegmentLogBatchReader(SentToWorkers, DataSourceReader):
    """Reads stores once, between the positions of the options."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._projection = project(schema, options)

    @property
    def target(self) -> pa.Schema:
        """The schema of the batches, which is Spark's own."""
        return self._projection.target

    @in_spark_words()
    def partitions(self) -> list[InputPartition]:
        """Plan the read; no partition when there is nothing to read."""
        return list(plan_partitions(self._options, scan_spec(self._options, self._projection)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's share. Spark makes up a partition without a share when there is none."""
        return read_partition(partition, self._projection)
