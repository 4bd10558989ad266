"""The data source as Spark sees it: a name, a schema, and factories. No logic."""

from typing import NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .batch_reader import SegmentLogBatchReader
from .errors import NotSupportedError
from .options import parse_read_options
from .planning import open_stores
from .schema import spark_schema

NAME = "segmentlog"


class SegmentLogDataSource(DataSource):
    """RocketMQ store directories; see ``docs/options.md`` for the options."""

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return NAME

    def schema(self) -> StructType:
        """Make the schema that the options ask for, of stores that are there.

        Spark does not ask when the user gives a schema.
        """
        options = parse_read_options(self.options)
        open_stores(options)  # a wrong path should fail in load(), not in the query after it
        return spark_schema(options)

    def reader(self, schema: StructType) -> SegmentLogBatchReader:
        """Make the batch reader."""
        return SegmentLogBatchReader(parse_read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802 - Spark's names
        """Refuse to read a stream."""
        raise NotSupportedError(
            "format `segmentlog` is not a streaming source",
            fix="Read in batches with spark.read, between startingTimestamp and endingTimestamp or by offsets",
        )

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, FBT001 - Spark's names
        """Refuse to write a batch."""
        raise _no_sink()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, FBT001, N802 - as above
        """Refuse to write a stream."""
        raise _no_sink()


def _no_sink() -> NotSupportedError:
    return NotSupportedError(
        "format `segmentlog` cannot be written", fix="It reads: use spark.read.format('segmentlog')"
    )
