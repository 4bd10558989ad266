"""The data source as Spark sees it: a name, a schema, and factories. No logic.

Spark makes a data source in several short-lived Python processes for each query, and each wants one thing of it. So
each part loads its own modules when it is made, and no others.
"""

# ruff: noqa: PLC0415

from collections.abc import Mapping
from datetime import tzinfo
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .errors import in_spark_words
from .options.option import STORAGE_PREFIX, Mode
from .options.read_options import parse_read_options, wants_metadata

if TYPE_CHECKING:
    from .find import LookupReader
    from .metadata import MetadataReader
    from .read import SegmentLogBatchReader
    from .setup.spark_versions import RefusedStream
    from .stream.reader import SegmentLogStreamReader
    from .write.writer import SegmentLogBatchWriter, SegmentLogStreamWriter

NAME = "segmentlog"


class SegmentLogDataSource(DataSource):
    """RocketMQ store directories; see ``docs/options.md`` for the options."""

    settings: ClassVar[Mapping[str, str]] = {}
    """Settings of object storage of the session; a class that `register` makes has them."""
    time_zone: ClassVar[tzinfo | None] = None
    """Time zone of the session, as `register` found it."""

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return NAME

    @property
    def _asked(self) -> dict[str, str]:
        """Options of a read, and the session's settings of object storage as weaker ones."""
        return {f"{STORAGE_PREFIX}{name}": value for name, value in self.settings.items()} | dict(self.options)

    @in_spark_words()
    def schema(self) -> StructType:
        """Make the schema that the options ask for, of stores that are there.

        Spark does not ask when the user states a schema.
        """
        if wants_metadata(self._asked):
            from .metadata import metadata_schema

            return metadata_schema(self._asked, self.time_zone)
        from .read import open_stores, spark_schema

        options = parse_read_options(self._asked, Mode.BOTH, self.time_zone)  # Spark does not say which it will be
        open_stores(options)  # a wrong path should fail in load(), not in the query after it
        return spark_schema(options)

    @in_spark_words()
    def reader(self, schema: StructType) -> "SegmentLogBatchReader | LookupReader | MetadataReader":
        """Make the batch reader, of messages or of metadata."""
        if wants_metadata(self._asked):
            from .metadata import MetadataReader

            return MetadataReader(self._asked, schema, self.time_zone)
        from .read import SegmentLogBatchReader

        options = parse_read_options(self._asked, session_zone=self.time_zone)
        if options.lookup is not None:
            from .find import LookupReader

            return LookupReader(options, options.lookup, schema)
        return SegmentLogBatchReader(options, schema)

    @in_spark_words()
    def streamReader(self, schema: StructType) -> "SegmentLogStreamReader | RefusedStream":  # noqa: N802 - Spark's name
        """Make the stream reader; a Spark that cannot run it gets one that raises."""
        from .setup.spark_versions import RefusedStream, has_streams

        if not has_streams():
            return RefusedStream()
        from .stream.reader import SegmentLogStreamReader

        return SegmentLogStreamReader(parse_read_options(self._asked, Mode.STREAM, self.time_zone), schema)

    @in_spark_words()
    def writer(self, schema: StructType, overwrite: bool) -> "SegmentLogBatchWriter":  # noqa: FBT001 - Spark's names
        """Make the batch writer, for a frame of this schema."""
        from .options.write_options import parse_write_options
        from .write.writer import SegmentLogBatchWriter, refuse_overwrite

        if overwrite:
            raise refuse_overwrite(Mode.BATCH)
        return SegmentLogBatchWriter(parse_write_options(self.options, Mode.BATCH), schema)

    @in_spark_words()
    def streamWriter(self, schema: StructType, overwrite: bool) -> "SegmentLogStreamWriter":  # noqa: FBT001, N802 - as above
        """Make the writer of one batch of a stream, for its tasks and once more for its commit."""
        from .options.write_options import parse_write_options
        from .setup.spark_versions import has_streams, refuse_stream
        from .write.writer import SegmentLogStreamWriter, refuse_overwrite

        if not has_streams():
            raise refuse_stream()

        if overwrite:
            raise refuse_overwrite(Mode.STREAM)
        return SegmentLogStreamWriter(parse_write_options(self.options, Mode.STREAM), schema)
