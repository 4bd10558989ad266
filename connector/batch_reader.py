"""The batch reader: plans on the driver, yields Arrow batches in the tasks.

::

    Spark's planning process   reader(schema) ── pushFilters ──► Pushed ── partitions ──► [StorePartition, …]
    Spark's worker, per task                                     read(StorePartition) ──► record batches

Spark 4.3 keeps one plan of a Python source for each ``load``, view or table reference, and a pushed filter replaces it.
``df.where("queueId = 1").count()`` followed by ``df.count()`` gives the first count twice, and a union of two filters
on ``df`` the last one twice: of any Python source, once pushdown is enabled. So a filter narrows only where the user
has said, with ``filterPushdown``, that the DataFrame is used once; else all are handed back, and every use is right.

The reader is pickled for the workers before ``partitions`` runs, so `read` goes by its projection and what is in
its partition, never by what planning found.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from segmentlog.store import OnCorrupt

from .filters import Pushed, push
from .options import ReadOptions
from .planning import plan_partitions
from .schema import check_schema, project
from .spark_versions import Filter
from .task_reader import read_partition, scan_spec

_NOT_OVERRIDDEN: Any = getattr(DataSourceReader, "pushFilters", None)  # not in PySpark 4.0


class _PushFilters:
    """``pushFilters``, as a method that Spark takes for one that is not overridden.

    With pushdown disabled, as it is by default, Spark refuses to read from a source that overrides the method, and it
    tells by ``__func__``. With pushdown enabled it calls the method without looking.
    """

    __func__ = staticmethod(_NOT_OVERRIDDEN)

    def __init__(self, reader: "SegmentLogBatchReader") -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.narrow(filters)


class SegmentLogBatchReader(DataSourceReader):
    """Reads stores once, from where to where the options say.

    Parameters
    ----------
    options
        What the user asked for.
    schema
        The columns Spark expects, checked by `check_schema` here.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._projection = project(schema, options)
        self._pushed = Pushed()

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802 - Spark's name
        """What Spark calls with its filters when pushdown is enabled."""
        return _PushFilters(self)

    @property
    def target(self) -> pa.Schema:
        """The schema of the batches, which is Spark's own."""
        return self._projection.target

    def narrow(self, filters: list[Filter]) -> list[Filter]:
        """Take filters into the plan; hand back those that Spark must check itself."""
        options = self._options
        if not options.filter_pushdown:
            return filters
        null_rows = options.on_corrupt is OnCorrupt.NULL
        self._pushed, handed_back = push(filters, mode=options.schema_mode, null_rows=null_rows)
        return handed_back

    def partitions(self) -> list[InputPartition]:
        """Plan the read; no partition when there is nothing to read."""
        return list(plan_partitions(self._options, self._pushed, scan_spec(self._options, self._projection)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's share. Spark makes up a partition without a share when there is none."""
        return read_partition(partition, self._projection)
