"""A read task, of a batch or of a micro-batch: opens one store, scans its share, yields Arrow batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from segmentlog.query.source import StoreSource
from segmentlog.store import ScanSpec, ScanTask

from ..errors import in_spark_words
from ..options.read_options import ReadOptions
from ..setup.worker_tuning import keep_memory, settle_worker
from .schema import Projection


@dataclass(frozen=True, kw_only=True)
class StorePartition(InputPartition):
    """One Spark task: runs of queues of one store, short ones packed together."""

    # Plain values: a view of a map would be pickled as all the bytes that it shows.

    source: StoreSource
    task: ScanTask
    spec: ScanSpec  # the columns that are read of each message, and the predicate that its rows are checked against


def scan_spec(options: ReadOptions, projection: Projection) -> ScanSpec:
    """Say what is read of each message; which messages is filled in for each task."""
    return ScanSpec(
        columns=projection.scan_columns,
        property_columns=projection.property_columns,
        check_crc=options.check_crc,
        on_corrupt=options.on_corrupt,
        on_loss=options.rules.on_loss,
        raw_body=options.raw_body,
        max_body_bytes=options.max_body_bytes,
        batch_bytes=options.batch_bytes,
        batch_rows=options.batch_rows,
    )


def read_partition(partition: InputPartition, projection: Projection) -> Iterator[pa.RecordBatch]:
    """Read one task's share. Spark makes up a partition without a share when there is none."""
    if not isinstance(partition, StorePartition):
        return
    keep_memory()
    with in_spark_words():
        store = partition.source.open()
        for batch in store.scan(partition.task, partition.spec):
            settle_worker()  # only now: what a batch needs has been imported
            yield projection.convert(batch)
