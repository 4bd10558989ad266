"""Discovery of the format by Spark: ``spark.read.format("segmentlog")`` works without registration.

Spark imports every installed module named ``pyspark_*`` when it looks any Python source up, and takes its
``DefaultSource``. So this module is light and never raises. Faults of the rest show when this format is used, and not
when another one is.
"""

from typing import Any

try:
    from pyspark.sql.datasource import DataSource
except Exception:  # noqa: BLE001, S110 - a PySpark that is too old, or none: then DefaultSource is not asked for
    pass
else:

    class DefaultSource(DataSource):
        """Stands for `segmentlog.connector.SegmentLogDataSource`, which it loads when it is used."""

        @classmethod
        def name(cls) -> str:
            """Name the format."""
            return "segmentlog"

        def _source(self) -> Any:
            from segmentlog.connector.source import SegmentLogDataSource  # noqa: PLC0415 - see the module's docstring

            return SegmentLogDataSource(self.options)

        def schema(self) -> Any:
            """See `SegmentLogDataSource`, as for all below."""
            return self._source().schema()

        def reader(self, schema: Any) -> Any:
            return self._source().reader(schema)

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            return self._source().streamReader(schema)

        def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: FBT001 - Spark's name
            return self._source().writer(schema, overwrite)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: FBT001, N802 - Spark's name
            return self._source().streamWriter(schema, overwrite)
