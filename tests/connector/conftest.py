"""Shared by the tests of the source: stores, and reads of them without a JVM."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from segmentlog.connector.source import SegmentLogDataSource
from support import fixtures

Read = Callable[..., pa.Table]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the path of a store, unpacked once, that no test may change."""
    unpacked: dict[str, Path] = {}

    def unpack(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = fixtures.unpack(name, tmp_path_factory.mktemp(name))
        return unpacked[name]

    return unpack


@pytest.fixture(scope="session")
def read() -> Read:
    """Read as Spark does, in this process: schema, filters, partitions, then every task in turn."""

    def read_all(
        path: Path | str | None,
        *,
        filters: Sequence[Filter] = (),
        schema: StructType | None = None,
        partitions: list[object] | None = None,
        **options: str,
    ) -> pa.Table:
        given = options if path is None else {"path": str(path)} | options
        source = SegmentLogDataSource(given)
        reader = source.reader(source.schema() if schema is None else schema)
        reader.pushFilters(list(filters))
        planned = reader.partitions()
        if partitions is not None:
            partitions += planned

        def batches() -> Iterator[pa.RecordBatch]:
            for partition in planned:
                yield from reader.read(partition)

        return pa.Table.from_batches(batches(), schema=reader.target)

    return read_all
